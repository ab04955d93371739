use super::*;

/// No statement reads a table or an index from one end to the other.
#[tokio::test]
async fn every_step_is_a_search() {
    let place = Place::new();
    drop(place.open().await);
    let conn = place.stranger();
    for sql in [
        lookup::FIND_STREAM,
        lookup::FIND_GROUP,
        lookup::STANDINGS,
        lookup::FRONTIER,
        lookup::FIRST_UNSETTLED,
        lookup::PENDING_BETWEEN,
        streams::HIGH_WATERMARK,
        streams::PARTITIONS,
        streams::READ,
        scan::SCAN_UP,
        scan::SCAN_DOWN,
        groups::COUNTS,
        groups::REDRIVEN,
        groups::PENDING,
        groups::DEAD_LETTERS,
        claim::READY,
        settle::HELD,
        settle::ACK,
        bury::BURY,
        redrive::LETTER,
        redrive::LOGGED,
        redrive::HAS,
        rewind::MARKERS,
        rewind::STRETCH,
        rewind::DROP_RECORDS,
        rewind::DROP_PENDING,
        rewind::TAKE_BACK,
        rewind::PENDING_OF_GROUP,
        rewind::RECORDS_OF_GROUP,
        rewind::LETTERS_OF_GROUP,
        trim::NEEDS,
        trim::OLDEST,
        trim::REMOVE,
        trim::GIVE_UP,
        explain::STATE,
        explain::EVENT,
        heal::NEXT,
    ] {
        let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let parameters = vec![rusqlite::types::Null; statement.parameter_count()];
        let steps = statement.query_map(rusqlite::params_from_iter(parameters), |row| row.get(3)).unwrap();
        let steps: Vec<String> = steps.map(rusqlite::Result::unwrap).collect();
        assert!(steps.iter().any(|step| step.starts_with("SEARCH")), "{sql}\n{steps:#?}");
        for step in &steps {
            // Of one row: `SELECT 1`.
            let constant = step.contains("CONSTANT ROW") || step.contains("(subquery");
            assert!(constant || !step.starts_with("SCAN"), "{sql}\n{steps:#?}");
            assert!(!step.contains("TEMP B-TREE"), "{sql}\n{steps:#?}");
        }
    }
}
