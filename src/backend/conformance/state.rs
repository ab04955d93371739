//! What handlers keep: read by key, listed by page, apart from what others keep.

use anyhow::{Result, ensure};

use super::Store;
use super::effects::{bucket, effects, scene, write};
use super::kit::{ensure_eq, name};
use crate::backend::{Error, STATE_KEYS_MAX};
use crate::state::{Bucket, StateWrite};

/// State is read by key and listed by page; namespaces keep theirs apart.
pub async fn is_kept_by_bucket_and_listed_by_page(store: &dyn Store) -> Result<()> {
    const KEYS: usize = 1200;
    let scene = scene(store, 1, 3).await?;
    let held = scene.claim("a", 3).await?;
    let writes = (0..KEYS).map(|n| write(&format!("k{n}"), &n.to_string())).collect::<Result<Vec<_>>>()?;
    scene.done(&held[0].lease, effects(vec![], vec![], writes)).await?;
    let shared = Bucket::shared(&name("accounts")?);
    let other = StateWrite { bucket: shared.clone(), key: "k1".to_owned(), value: Some(vec![0xff, 0]) };
    scene.done(&held[1].lease, effects(vec![], vec![], vec![other])).await?;

    let keys: Vec<String> = ["k1", "none", "k7", "k1"].map(str::to_owned).into();
    let values = scene.backend.state(&bucket()?, &keys).await?;
    let texts: Vec<_> =
        values.iter().map(|v| v.as_ref().map(|v| String::from_utf8_lossy(&v.bytes).into_owned())).collect();
    let expected = [Some("1"), None, Some("7"), Some("1")].map(|text| text.map(str::to_owned));
    ensure_eq("values come in the order asked for", texts, expected.to_vec())?;
    let values = scene.backend.state(&shared, &keys[..1]).await?;
    ensure_eq(
        "buckets are apart, and bytes are kept",
        values[0].as_ref().map(|v| v.bytes.clone()),
        Some(vec![0xff, 0]),
    )?;
    ensure_eq("no keys, no values", scene.backend.state(&shared, &[]).await?.len(), 0)?;
    let many = vec!["k".to_owned(); STATE_KEYS_MAX + 1];
    ensure_err!(
        "a bounded number of keys",
        scene.backend.state(&shared, &many).await,
        Error::BatchTooLarge { max: STATE_KEYS_MAX, .. }
    );

    let mut listed = std::collections::BTreeSet::new();
    let (mut cursor, mut pages) = (None, 0);
    loop {
        let page = scene.backend.state_keys(&bucket()?, cursor).await?;
        listed.extend(page.keys);
        pages += 1;
        ensure!(pages < 10_000, "a list of keys ends");
        match page.cursor {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    ensure_eq("every key is listed", listed.len(), KEYS)?;
    ensure!(pages > 1, "a long list comes in pages");
    let elsewhere = store.elsewhere().await?;
    ensure_eq(
        "another namespace has its own state",
        elsewhere.state(&bucket()?, &keys).await?,
        vec![None; 4],
    )?;
    ensure_eq("and its own lists", elsewhere.state_keys(&bucket()?, None).await?.keys.len(), 0)
}
