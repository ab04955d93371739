//! Makes the corpus of replies: what a real server says to each operation. Not part of a test run:
//! `cargo nextest run --run-ignored only -E 'test(record_replies)'` writes it anew.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use wasmill::backend::redis::Redis;
use wasmill::backend::{Backend as _, ClaimRequest, NewGroup, Settings, SettleRequest, Start};
use wasmill::event::{Lease, Leased};
use wasmill::outcome::{Cause, FailureKind, Settlement, Verdict};

use crate::server::RedisServer;
use crate::targets::operations::{OPERATIONS, carry_out, event, group};
use crate::targets::resp::{Answer, Talk, Values};
use crate::targets::url;

type Record = Arc<Mutex<Vec<u8>>>;

async fn connect(text: &str) -> Redis {
    let settings = Settings { namespace: "T".to_owned(), ..Settings::default() };
    Redis::connect(&url(text), &settings).await.unwrap()
}

/// Stands between one client and the server, and writes down the replies that a script has to give.
async fn listen(server: String, record: Record) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (from, mut to) = client.into_split();
            let (answers, mut ask) = TcpStream::connect(&server).await.unwrap().into_split();
            let record = Arc::clone(&record);
            tokio::spawn(async move {
                let (mut commands, mut answers) = (Values::new(from), Values::new(answers));
                let mut talk = Talk::default();
                while let Some(command) = commands.next().await {
                    let scripted = talk.hear(&command) == Answer::Scripted;
                    ask.write_all(&command).await.unwrap();
                    let Some(answer) = answers.next().await else { return };
                    if scripted {
                        record.lock().unwrap().extend_from_slice(&answer);
                    }
                    if to.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

async fn claim(redis: &Redis, limit: usize, lease: Duration) -> Vec<Leased> {
    let group = &group();
    let partitions = &[0, 1];
    let request = ClaimRequest { group, consumer: "c", partitions, limit, lease, sweep: false, alone: false };
    redis.claim(&request).await.unwrap().leased
}

/// A group with something of everything: settled, leased, parked, dead, expired and new events.
async fn filled(redis: &Redis) -> (Vec<Lease>, Vec<String>) {
    let group = group();
    redis.create_stream(&group.stream, 2).await.unwrap();
    redis.create_group(&group, NewGroup { max_attempts: 3, start: Start::Beginning }).await.unwrap();
    let events: Vec<_> =
        (0..12).map(|n| wasmill::event::NewEvent { partition: Some(n % 2), ..event() }).collect();
    redis.append(&group.stream, &events).await.unwrap();
    let short = claim(redis, 2, Duration::from_millis(1)).await;
    assert_eq!(short.len(), 2);
    let leases: Vec<Lease> =
        claim(redis, 6, Duration::from_secs(600)).await.into_iter().map(|leased| leased.lease).collect();
    let verdicts = [
        Verdict::DeadLetter { cause: Cause::Rejected, reason: "no".to_owned(), failure: None },
        Verdict::Retry {
            delay: Duration::from_secs(600),
            reason: "later".to_owned(),
            failure: FailureKind::Retry,
        },
        Verdict::Ack(wasmill::outcome::Effects::default()),
    ];
    let settlements: Vec<Settlement> = leases
        .iter()
        .zip(verdicts)
        .map(|(lease, verdict)| Settlement { lease: lease.clone(), verdict, plugin: None })
        .collect();
    let request = SettleRequest { group: &group, consumer: "c", settlements: &settlements };
    redis.settle(&request).await.unwrap();
    let rows = redis.dead_letters(&group, None, 10).await.unwrap().into_iter().map(|dead| dead.row).collect();
    (leases[3..].to_vec(), rows)
}

#[tokio::test]
#[ignore = "writes the corpus"]
async fn record_replies() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/reply");
    for (n, name) in OPERATIONS.iter().enumerate() {
        let server = RedisServer::start();
        let (leases, rows) = filled(&connect(&server.url()).await).await;
        let record = Record::default();
        let redis = connect(&listen(format!("127.0.0.1:{}", server.port()), Arc::clone(&record)).await).await;
        carry_out(name, &redis, &leases, &rows).await.unwrap();
        let mut input = vec![b'A' + u8::try_from(n).unwrap()];
        input.extend_from_slice(&record.lock().unwrap());
        assert!(input.len() > 1, "{name} asked for nothing");
        std::fs::write(folder.join(name), input).unwrap();
    }
}

#[test]
#[ignore = "writes the corpus"]
fn record_component() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("tests/fuzz/targets/answer.wat")).unwrap();
    std::fs::write(root.join("fuzz/corpus/component/handler"), wat::parse_str(text).unwrap()).unwrap();
}
