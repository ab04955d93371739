//! A TCP proxy that breaks connections in the ways that networks do.

#[cfg(test)]
mod tests;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the network does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// It carries everything.
    Fair,
    /// Each piece of an answer comes so much later.
    Slow(Duration),
    /// Connections stay, and carry nothing more of answers once so many bytes have passed.
    StallAfter(u64),
    /// Connections stay on the client's side; behind them there is no one any more. New ones are fair.
    HalfOpen,
    /// There is no connection, and none comes about.
    Away,
}

/// A running proxy on a port of 127.0.0.1. It ends with its value.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: u16,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    weather: Weather,
    /// So many answers are thrown away, each with its connection, after their requests were carried out.
    lose_answers: u32,
    /// Answers and connections that were taken away, so far.
    broken: u64,
    links: Vec<Link>,
    over: bool,
}

struct Link {
    client: TcpStream,
    server: TcpStream,
}

impl Link {
    fn cut(&self) {
        // What is closed already stays so.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

/// What becomes of a piece of an answer.
enum Piece {
    Pass,
    /// The answer is lost, and its connection too.
    Lose,
    /// Nobody waits for it any more.
    Drop,
}

impl Proxy {
    /// A proxy before this port of 127.0.0.1, in fair weather.
    pub(crate) fn before(upstream: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state =
            State { weather: Weather::Fair, lose_answers: 0, broken: 0, links: Vec::new(), over: false };
        let shared = Arc::new(Shared { upstream, state: Mutex::new(state), changed: Condvar::new() });
        std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.listen(&listener)
        });
        Self { port, shared }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How many answers and connections were taken away so far.
    pub(crate) fn broken(&self) -> u64 {
        self.shared.state().broken
    }

    pub(crate) fn set(&self, weather: Weather) {
        let mut state = self.shared.state();
        state.weather = weather;
        match weather {
            Weather::Away => state.cut(),
            Weather::HalfOpen => {
                state.broken += state.links.len() as u64;
                for link in state.links.drain(..) {
                    let _ = link.server.shutdown(Shutdown::Both);
                }
            }
            Weather::Fair | Weather::Slow(_) | Weather::StallAfter(_) => {}
        }
        self.shared.changed.notify_all();
    }

    /// Cuts all connections; new ones come about.
    pub(crate) fn cut(&self) {
        self.shared.state().cut();
    }

    /// Cuts connections between request and answer: the next so many requests are carried out, and
    /// their answers never arrive.
    pub(crate) fn lose_answers(&self, count: u32) {
        self.shared.state().lose_answers = count;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.over = true;
        state.cut();
        self.shared.changed.notify_all();
        drop(state);
        // Wakes the listener, which then sees that it is over.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl State {
    fn cut(&mut self) {
        self.broken += self.links.len() as u64;
        self.links.drain(..).for_each(|link| link.cut());
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            let Ok((client, _)) = listener.accept() else { return };
            if self.state().over {
                return;
            }
            // Where there is no server, the client's connection just ends.
            if let Ok(server) = TcpStream::connect(("127.0.0.1", self.upstream)) {
                let _ = self.link(client, server);
            }
        }
    }

    fn link(self: &Arc<Self>, client: TcpStream, server: TcpStream) -> std::io::Result<()> {
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let link = Link { client: client.try_clone()?, server: server.try_clone()? };
        {
            let mut state = self.state();
            if state.weather == Weather::Away {
                link.cut();
                return Ok(());
            }
            state.links.push(link);
        }
        let (requests, answers) = ((client.try_clone()?, server.try_clone()?), (server, client));
        let shared = Arc::clone(self);
        std::thread::spawn(move || shared.carry_requests(requests.0, requests.1));
        let shared = Arc::clone(self);
        std::thread::spawn(move || shared.carry_answers(answers.0, answers.1));
        Ok(())
    }

    fn carry_requests(&self, mut client: TcpStream, mut server: TcpStream) {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = client.read(&mut piece) {
            // Behind a half-open connection there is no one: what is sent is lost, and no one says so.
            let sent = server.write_all(&piece[..length]);
            if sent.is_err() && self.state().weather != Weather::HalfOpen {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
    }

    fn carry_answers(&self, mut server: TcpStream, mut client: TcpStream) {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = server.read(&mut piece) {
            match self.let_through(length, |first| client.write_all(&piece[..first]).is_ok()) {
                Piece::Pass => {}
                Piece::Lose => {
                    let _ = server.shutdown(Shutdown::Both);
                    break;
                }
                Piece::Drop => return,
            }
        }
        if self.state().weather != Weather::HalfOpen {
            let _ = client.shutdown(Shutdown::Both);
        }
    }

    /// Lets a piece of an answer through as the weather has it, by `send`, which sends its first bytes.
    fn let_through(&self, length: usize, mut send: impl FnMut(usize) -> bool) -> Piece {
        let mut state = self.state();
        let mut sent = 0;
        loop {
            if state.over {
                return Piece::Drop;
            }
            if state.lose_answers > 0 {
                state.lose_answers -= 1;
                state.broken += 1;
                return Piece::Lose;
            }
            match state.weather {
                Weather::Slow(time) => {
                    drop(state);
                    std::thread::sleep(time);
                    break;
                }
                Weather::StallAfter(left) => {
                    // What was sent of the piece before cannot be sent again: only whole pieces and one
                    // first part pass.
                    let pass = usize::try_from(left).unwrap_or(usize::MAX).min(length);
                    if sent == 0 && pass > 0 {
                        state.weather = Weather::StallAfter(left - pass as u64);
                        if !send(pass) || pass == length {
                            return Piece::Pass;
                        }
                        sent = pass;
                        state.broken += 1;
                    }
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                // The rest of an answer that was held up for long comes too late: a connection that
                // broke in the middle of an answer stays broken.
                _ if sent > 0 => return Piece::Lose,
                Weather::Fair | Weather::HalfOpen | Weather::Away => {
                    drop(state);
                    break;
                }
            }
        }
        // A client that is gone is noticed when its requests end.
        send(length);
        Piece::Pass
    }
}
