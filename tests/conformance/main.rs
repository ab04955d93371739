//! The conformance suite over every backend, and a random walk of each beside a model.

// Helpers of tests are tests, which the lint does not know of this kind of crate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod model;
#[path = "../support/redis.rs"]
mod server;
mod stores;

use wasmill::backend::conformance;

/// One test per promise, over stores that `stores::$open` makes.
macro_rules! over_store {
    ([$open:ident] $($family:ident { $($promise:ident)* })*) => {
        mod $open {
            $(mod $family {
                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $promise() {
                        let store = crate::stores::$open().await;
                        let kept = crate::conformance::$family::$promise(&store).await;
                        kept.unwrap_or_else(|broken| panic!("{broken:#}"));
                    }
                )*
            })*
        }
    };
}

wasmill::conformance_promises!(over_store, sqlite_memory);
wasmill::conformance_promises!(over_store, sqlite_file);
wasmill::conformance_promises!(over_store, redis);

/// Every promise in the sources is in the list, so that none is written and never checked.
#[test]
fn every_promise_is_listed() {
    macro_rules! listed {
        ([] $($family:ident { $($promise:ident)* })*) => {
            [$((stringify!($family), vec![$(stringify!($promise)),*])),*]
        };
    }
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/src/backend/conformance");
    let mut families = 0;
    for (family, listed) in wasmill::conformance_promises!(listed) {
        let source = std::fs::read_to_string(format!("{sources}/{family}.rs")).unwrap();
        let promises: Vec<&str> = source
            .lines()
            .filter_map(|line| line.strip_prefix("pub async fn "))
            .filter_map(|rest| rest.split('(').next())
            .collect();
        assert_eq!(listed, promises, "in {family}.rs");
        families += 1;
    }
    // Beside the families the folder holds the list itself and the two files of the kit.
    assert_eq!(std::fs::read_dir(sources).unwrap().count(), families + 3);
}
