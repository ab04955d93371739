//! What a server of Redis' protocol can say to the client that asks it: any bytes at all.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use wasmill::backend::Settings;
use wasmill::backend::redis::Redis;
use wasmill::event::Lease;
use wasmill::target::{RedisUrl, Target};

use super::operations::{OPERATIONS, carry_out};
use super::resp::{Answer, Talk, Values, value_end};

/// From this first byte on, the input answers the commands that set a connection up, too.
const FROM_THE_START: u8 = 128;

/// The first byte says which operation is asked for (`A` is the first one). The rest are the replies:
/// one value for each command that asks for something, in order; what is no whole value is sent as it
/// is. Then the server hangs up.
pub(crate) fn reply(input: &[u8]) {
    let Some((&first, replies)) = input.split_first() else { return };
    count_panics();
    let name = OPERATIONS[usize::from(first.wrapping_sub(b'A')) % OPERATIONS.len()];
    let before = PANICS.load(Ordering::SeqCst);
    super::bounded(name, async {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = url(&format!("redis://{}", listener.local_addr().unwrap()));
        let server = tokio::spawn(serve(listener, script(replies), first >= FROM_THE_START));
        let settings = Settings { namespace: "T".to_owned(), ..Settings::default() };
        let answer = match Redis::connect(&url, &settings).await {
            Ok(redis) => carry_out(name, &redis, &leases(), &["1-0".to_owned(), "2-0".to_owned()]).await,
            Err(error) => Err(error),
        };
        if let Err(error) = answer {
            assert!(!error.to_string().is_empty());
        }
        server.abort();
        let _ = server.await;
    });
    // A panic of a task behind the client's back ends only the task.
    assert_eq!(PANICS.load(Ordering::SeqCst), before, "{name} panicked");
}

pub(crate) fn url(text: &str) -> RedisUrl {
    match Target::parse(text, Path::new(".")) {
        Ok(Target::Redis(url)) => url,
        other => panic!("{other:?}"),
    }
}

static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let shown = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            shown(info);
        }));
    });
}

fn leases() -> Vec<Lease> {
    let lease = |n: u64| Lease {
        id: "abcdefghijklmnopqrstuv".into(),
        receipt: format!("170000000000{n}-{}", 2 * n).into(),
        partition: 0,
        sequence: n,
        attempt: 1,
    };
    (1..=3).map(lease).collect()
}

type Replies = Arc<Mutex<VecDeque<Vec<u8>>>>;

fn script(mut bytes: &[u8]) -> Replies {
    let mut replies = VecDeque::new();
    while !bytes.is_empty() {
        let (reply, rest) = bytes.split_at(value_end(bytes).unwrap_or(bytes.len()));
        replies.push_back(reply.to_vec());
        bytes = rest;
    }
    Arc::new(Mutex::new(replies))
}

async fn serve(listener: TcpListener, replies: Replies, from_the_start: bool) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(talk(stream, Arc::clone(&replies), from_the_start));
    }
}

/// One connection, until a command comes for which there is no reply left.
async fn talk(stream: TcpStream, replies: Replies, from_the_start: bool) {
    // Small answers go out at once.
    let _ = stream.set_nodelay(true);
    let (from, mut to) = stream.into_split();
    let (mut commands, mut talk) = (Values::new(from), Talk::default());
    while let Some(command) = commands.next().await {
        let answer = talk.hear(&command);
        if let Answer::Always(reply) = answer
            && !from_the_start
        {
            if to.write_all(reply).await.is_err() {
                return;
            }
            continue;
        }
        loop {
            let Some(reply) = replies.lock().unwrap().pop_front() else { return };
            if to.write_all(&reply).await.is_err() || value_end(&reply).is_none() {
                return;
            }
            // What a server pushes by itself is no answer: the client goes on waiting.
            if !reply.starts_with(b">") {
                break;
            }
        }
    }
}
