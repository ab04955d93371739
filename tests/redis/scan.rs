//! Reading a log that others write to as well.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use wasmill::backend::{Backend as _, Order, ScanRange, Unreadable};
use wasmill::event::{JsonObject, NewEvent};

use crate::kit::{Bench, connect_for};

const ALL: ScanRange =
    ScanRange { after: 0, until: wasmill::event::NUMBER_MAX, order: Order::Ascending, limit: 1 };
/// How long what must happen may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// All sequences by pages of this size, in the order in which they came; and what was unreadable.
async fn walk(bench: &Bench, order: Order, limit: usize) -> (Vec<u64>, Vec<Unreadable>) {
    let (mut sequences, mut unreadable) = (Vec::new(), Vec::new());
    let mut range = ScanRange { order, limit, ..ALL };
    loop {
        let page = bench.backend.scan(&bench.group.stream, 0, range).await.unwrap();
        sequences.extend(page.events.iter().map(|event| event.sequence));
        unreadable.extend(page.unreadable);
        let Some(next) = page.next else { return (sequences, unreadable) };
        let left = range.behind(next);
        assert_ne!(left, range, "a page goes on");
        range = left;
    }
}

async fn assert_walks(bench: &Bench, expected: &[u64]) {
    for limit in [1, 2, 3, 7, 33, 1000] {
        for order in [Order::Ascending, Order::Descending] {
            let (mut found, unreadable) = walk(bench, order, limit).await;
            if order == Order::Descending {
                found.reverse();
            }
            assert_eq!(found, expected, "{order:?} by {limit}");
            assert_eq!(unreadable, []);
        }
    }
}

fn old(low: u64) -> String {
    format!("1700000000000-{low}")
}

#[tokio::test]
async fn entries_out_of_order_and_without_rows_come_in_their_places() {
    let bench = Bench::new(1).await;
    // Appends overlap by 40; some died before their entry, some before their row.
    let mut expected = BTreeSet::new();
    let mut low = 0;
    for _ in 0..6 {
        let mut taken: Vec<u64> = (0..40).map(|_| bench.take_sequence(0)).collect();
        taken.sort_by_key(|sequence| (sequence * 7919) % 41);
        for sequence in taken {
            if sequence % 11 == 5 {
                continue;
            }
            low += 1;
            let id = bench.add_entry(0, &old(low), sequence);
            expected.insert(sequence);
            if sequence % 5 != 3 {
                bench.add_row(0, &id, sequence);
            }
        }
    }
    assert_walks(&bench, &expected.into_iter().collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn a_tail_without_rows_is_read() {
    let bench = Bench::new(1).await;
    bench.append(0, 3).await;
    for _ in 0..700 {
        let sequence = bench.take_sequence(0);
        bench.add_entry(0, "*", sequence);
    }
    for (order, limit) in [(Order::Ascending, 100), (Order::Descending, 300), (Order::Ascending, 5000)] {
        let (mut found, _) = walk(&bench, order, limit).await;
        found.sort_unstable();
        assert_eq!(found, (1..=703).collect::<Vec<_>>(), "{order:?} by {limit}");
    }
}

#[tokio::test]
async fn a_page_ends_before_a_gap_that_may_be_filled() {
    let bench = Bench::new(1).await;
    bench.append(0, 2).await;
    let late = bench.take_sequence(0);
    bench.append(0, 2).await;
    let range = ScanRange { limit: 10, ..ALL };
    let page = bench.backend.scan(&bench.group.stream, 0, range).await.unwrap();
    assert_eq!(page.events.iter().map(|event| event.sequence).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(page.next, None, "the end for now");
    let late = bench.add_entry(0, "*", late);
    let page = bench.backend.scan(&bench.group.stream, 0, range.behind(2)).await.unwrap();
    assert_eq!(page.events.iter().map(|event| event.sequence).collect::<Vec<_>>(), [3, 4, 5]);
    // One that was given up long ago stops nothing.
    let _: i64 = bench.raw(&format!("XDEL rheo:T:s:s:0 {late}"));
    let hasty = connect_for(&bench.server.url(), Duration::from_millis(1)).await.unwrap();
    let page = hasty.scan(&bench.group.stream, 0, range).await.unwrap();
    assert_eq!(page.events.iter().map(|event| event.sequence).collect::<Vec<_>>(), [1, 2, 4, 5]);
}

#[tokio::test]
async fn ids_far_ahead_of_the_clock_do_not_end_a_scan_for_good() {
    let bench = Bench::new(1).await;
    bench.append_like_rheo(0, "9000000000000-1");
    bench.take_sequence(0);
    bench.append_like_rheo(0, "9000000000000-2");
    bench.append(0, 1).await;
    assert_eq!(walk(&bench, Order::Ascending, 10).await.0, [1, 3, 4]);
}

#[tokio::test]
async fn what_is_no_event_is_told_once() {
    let bench = Bench::new(1).await;
    bench.append_like_rheo(0, &old(1));
    let none: String = bench.raw(&format!("XADD rheo:T:s:s:0 {} foo bar", old(2)));
    let sequence = bench.take_sequence(0);
    let broken: String = bench.raw(&format!("XADD rheo:T:s:s:0 {} sequence {sequence} payload [", old(3)));
    bench.add_row(0, &broken, sequence);
    bench.append_like_rheo(0, &old(4));
    // Two entries that claim one sequence; one whose row says another one than it does itself.
    for low in [5, 6] {
        let id = bench.add_entry(0, &old(low), 4);
        bench.add_row(0, &id, 4);
    }
    bench.take_sequence(0);
    let sequence = bench.take_sequence(0);
    let id = bench.add_entry(0, &old(7), 2);
    bench.add_row(0, &id, sequence);
    let tail: String = bench.raw(&format!("XADD rheo:T:s:s:0 {} foo bar", old(8)));
    for limit in [1, 2, 3, 100] {
        for order in [Order::Ascending, Order::Descending] {
            let (mut found, mut unreadable) = walk(&bench, order, limit).await;
            found.sort_unstable();
            assert_eq!(found, [1, 3, 4, 4, 5], "{order:?} by {limit}");
            unreadable.sort_by(|a, b| a.receipt.cmp(&b.receipt));
            let told: Vec<_> = unreadable.iter().map(|row| (row.sequence, row.receipt.as_str())).collect();
            let expected = [(None, none.as_str()), (Some(2), broken.as_str()), (None, tail.as_str())];
            assert_eq!(told, expected, "{order:?} by {limit}");
        }
    }
}

#[tokio::test]
async fn rows_that_name_no_entry_are_passed_over() {
    let bench = Bench::new(1).await;
    bench.append_like_rheo(0, &old(1));
    for id in ["nonsense", "1-2-3", "1699999999999-0"] {
        let sequence = bench.take_sequence(0);
        bench.add_row(0, id, sequence);
    }
    bench.append_like_rheo(0, &old(5));
    assert_walks(&bench, &[1, 5]).await;
}

#[tokio::test]
async fn a_log_that_lost_its_entries_ends() {
    let bench = Bench::new(1).await;
    bench.append(0, 20_000).await;
    let _: i64 = bench.raw("DEL rheo:T:s:s:0");
    bench.append(0, 1).await;
    for order in [Order::Ascending, Order::Descending] {
        assert_eq!(walk(&bench, order, 10).await.0, [20_001]);
    }
}

#[tokio::test]
async fn pages_stay_small() {
    let bench = Bench::new(1).await;
    bench.append(0, 20_000).await;
    for order in [Order::Ascending, Order::Descending] {
        let (mut found, _) = walk(&bench, order, 100_000).await;
        found.sort_unstable();
        assert_eq!(found, (1..=20_000).collect::<Vec<_>>());
    }
    // Large events: a page ends after some megabytes, whatever was asked for.
    let bench = Bench::new(1).await;
    let payload = JsonObject::parse(format!("{{\"n\":\"{}\"}}", "x".repeat(200_000))).unwrap();
    for _ in 0..20 {
        let events: Vec<_> =
            (0..10).map(|_| NewEvent { partition: Some(0), ..NewEvent::new(payload.clone()) }).collect();
        bench.backend.append(&bench.group.stream, &events).await.unwrap();
    }
    let mut range = ScanRange { limit: 100_000, ..ALL };
    let (mut events, mut pages) = (0, 0);
    loop {
        let page = bench.backend.scan(&bench.group.stream, 0, range).await.unwrap();
        assert!(page.events.len() <= 60, "{} events of 200 kB", page.events.len());
        events += page.events.len();
        pages += 1;
        let Some(next) = page.next else { break };
        range = range.behind(next);
    }
    assert_eq!(events, 200);
    assert!(pages >= 4, "{pages} pages");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_of_others_under_way_are_all_found_and_none_twice() {
    const APPENDERS: usize = 6;
    const EACH: usize = 60;
    let mut bench = Bench::new(1).await;
    bench.backend = connect_for(&bench.server.url(), Duration::from_secs(2)).await.unwrap();
    let appended = Mutex::new(BTreeSet::new());
    let running = AtomicUsize::new(APPENDERS);
    let (bench, appended, running) = (&bench, &appended, &running);
    let append = || {
        for _ in 0..EACH {
            let sequence = bench.take_sequence(0);
            let fate = rand::random_range(0..20);
            // Fate 0: dies before the entry. 1 and 2: before the row.
            if fate > 0 {
                std::thread::sleep(Duration::from_millis(rand::random_range(0..8)));
                let id = bench.add_entry(0, "*", sequence);
                appended.lock().unwrap().insert(sequence);
                if fate > 2 {
                    std::thread::sleep(Duration::from_millis(rand::random_range(0..4)));
                    bench.add_row(0, &id, sequence);
                }
            }
        }
        running.fetch_sub(1, Ordering::SeqCst);
    };
    let found = tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            (0..APPENDERS).for_each(|_| drop(scope.spawn(append)));
            tokio::runtime::Handle::current().block_on(read_until_end(bench, appended, running))
        })
    });
    assert_eq!(found, appended.lock().unwrap().iter().copied().collect::<Vec<_>>());
}

/// Pages on and on, until all appenders are done and all is found.
async fn read_until_end(bench: &Bench, appended: &Mutex<BTreeSet<u64>>, running: &AtomicUsize) -> Vec<u64> {
    let mut found = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    let mut after = 0;
    loop {
        let ended = running.load(Ordering::SeqCst) == 0;
        let limit = rand::random_range(1..20);
        let range = ScanRange { after, limit, ..ALL };
        let page = bench.backend.scan(&bench.group.stream, 0, range).await.unwrap();
        for event in page.events {
            assert!(event.sequence > after, "{} after {after}", event.sequence);
            after = event.sequence;
            found.push(after);
        }
        after = page.next.unwrap_or(after);
        if ended && page.next.is_none() && found.len() >= appended.lock().unwrap().len() {
            return found;
        }
        assert!(Instant::now() < deadline, "{} of {}", found.len(), appended.lock().unwrap().len());
    }
}
