use super::*;
use crate::backend::Synchronous;

async fn refusal(place: &Place, mode: Mode) -> String {
    let error = place.open_as(mode, &Settings::default()).await.unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn what_is_stored_is_there_after_closing_and_nothing_lies_beside_it() {
    let place = Place::new();
    let store = place.open().await;
    prepare(&store, 2, 5).await;
    store.append(&key().stream, &events(3)).await.unwrap();
    drop(store);
    assert_eq!(std::fs::read_dir(place.directory.path()).unwrap().count(), 1);

    let store = place.open_as(Mode::Existing, &Settings::default()).await.unwrap();
    assert_eq!(store.read(&key().stream, 0, 0, 10).await.unwrap().len(), 3);
    assert_eq!(claim(&store, 10).await.leased.len(), 3);
}

#[tokio::test]
async fn a_missing_directory_is_named() {
    let place = Place::new();
    let path = place.directory.path().join("no/such/log.db");
    let error = open(&path, Mode::Create, &Settings::default(), Clock::System).await.unwrap_err();
    assert!(matches!(error, Error::Refused(_)));
    assert!(error.to_string().contains("no/such`"), "{error}");
}

#[tokio::test]
async fn listing_makes_no_file_and_says_that_there_is_none() {
    let place = Place::new();
    assert!(refusal(&place, Mode::Existing).await.contains("there is no database"));
    assert!(!place.path().exists());
    std::fs::write(place.path(), "").unwrap();
    assert!(refusal(&place, Mode::Existing).await.contains("nothing was stored"));
    assert_eq!(std::fs::read(place.path()).unwrap(), b"");
}

#[tokio::test]
async fn listing_does_not_write_to_the_file() {
    let place = Place::new();
    prepare(&place.open().await, 1, 5).await;
    let before = std::fs::read(place.path()).unwrap();
    let store = place.open_as(Mode::Existing, &Settings::default()).await.unwrap();
    assert_eq!(store.streams().await.unwrap().len(), 1);
    assert_eq!(store.group_info(&key()).await.unwrap().partitions.len(), 1);
    drop(store);
    assert!(std::fs::read(place.path()).unwrap() == before);
}

#[tokio::test]
async fn what_is_no_database_is_refused_and_left_alone() {
    let place = Place::new();
    assert!(open(place.directory.path(), Mode::Create, &Settings::default(), Clock::System).await.is_err());

    let text = "a text that is certainly no database, ".repeat(100);
    std::fs::write(place.path(), &text).unwrap();
    for mode in [Mode::Create, Mode::Existing] {
        assert!(refusal(&place, mode).await.contains("log.db` is no SQLite database"));
    }
    assert_eq!(std::fs::read_to_string(place.path()).unwrap(), text);
}

#[tokio::test]
async fn another_programs_database_is_refused_and_left_alone() {
    let place = Place::new();
    place.stranger().execute_batch("CREATE TABLE streams (id)").unwrap();
    let before = std::fs::read(place.path()).unwrap();
    for mode in [Mode::Create, Mode::Existing] {
        assert!(refusal(&place, mode).await.contains("another program's"));
    }
    assert!(std::fs::read(place.path()).unwrap() == before);
}

#[tokio::test]
async fn a_newer_version_is_refused() {
    let place = Place::new();
    drop(place.open().await);
    place.stranger().pragma_update(None, "user_version", 7).unwrap();
    for mode in [Mode::Create, Mode::Existing] {
        let message = refusal(&place, mode).await;
        assert!(message.contains("newer Wasmill") && message.contains("schema is 7"), "{message}");
    }
}

#[tokio::test]
async fn the_schema_that_was_never_released_is_refused_with_what_to_do() {
    let place = Place::new();
    drop(place.open().await);
    place.stranger().pragma_update(None, "user_version", 1).unwrap();
    for mode in [Mode::Create, Mode::Existing] {
        let message = refusal(&place, mode).await;
        assert!(message.contains("schema 1") && message.contains("move the file away"), "{message}");
    }
}

#[tokio::test]
async fn many_can_make_the_same_file_at_once() {
    let place = Place::new();
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let path = place.path();
        opening.spawn(async move { open(&path, Mode::Create, &Settings::default(), Clock::System).await });
    }
    let stores: Vec<Sqlite> = opening.join_all().await.into_iter().map(Result::unwrap).collect();
    prepare(&stores[0], 1, 5).await;
    assert!(matches!(stores[7].create_stream(&key().stream, 1).await, Err(Error::StreamExists(_))));
}

#[tokio::test]
async fn namespaces_do_not_see_each_other() {
    let place = Place::new();
    let ours = place.open().await;
    let settings = Settings { namespace: "Other".to_owned(), ..Settings::default() };
    let theirs = place.open_as(Mode::Create, &settings).await.unwrap();
    prepare(&ours, 2, 5).await;
    ours.append(&key().stream, &events(3)).await.unwrap();
    assert_eq!(theirs.streams().await.unwrap(), []);
    assert!(matches!(theirs.group_info(&key()).await, Err(Error::StreamNotFound(_))));

    prepare(&theirs, 1, 5).await;
    assert_eq!(claim(&theirs, 10).await.leased.len(), 0);
    assert_eq!(claim(&ours, 10).await.leased.len(), 3);
    assert_eq!(theirs.append(&key().stream, &events(1)).await.unwrap()[0].sequence, 1);
}

#[tokio::test]
async fn synchronous_is_as_set() {
    for (synchronous, expected) in [(Synchronous::Full, 2), (Synchronous::Normal, 1)] {
        let place = Place::new();
        let settings = Settings { synchronous, ..Settings::default() };
        let store = place.open_as(Mode::Create, &settings).await.unwrap();
        let pragma = |name: &'static str| {
            store
                .writer
                .call(move |op| Ok(op.conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0))?))
        };
        assert_eq!(pragma("synchronous").await.unwrap(), expected);
        let mode = place.stranger().pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0));
        assert_eq!(mode.unwrap(), "wal");
    }
}
