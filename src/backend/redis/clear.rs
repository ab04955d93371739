//! Removing a whole namespace, for those who made it only to throw it away.

use redis::Value;

use super::Redis;
use super::connection::Effect;
use super::reply::{self, array, text_or_empty};
use crate::backend::Result;

/// Keys that one step looks at, and at most removes: far below a millisecond of the server's time.
/// (What a key holds is freed by a thread of its own.)
const STEP: usize = 500;

impl Redis {
    /// Removes every key of this namespace, step by step, whoever wrote it, and says how many there
    /// were. Keys that are written meanwhile may stay.
    ///
    /// # Errors
    /// Those of the store; then what was not reached stays.
    pub async fn clear_namespace(&self) -> Result<u64> {
        let mut removed = 0;
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(self.keys.every_pattern()).arg("COUNT").arg(STEP);
            let mut answer = array(self.connection.call(&scan, Effect::None).await?)?.into_iter();
            cursor = text_or_empty(answer.next().unwrap_or(Value::Nil))?;
            let found = array(answer.next().unwrap_or(Value::Nil))?.into_iter();
            let keys = found.filter_map(|key| reply::bytes(key).transpose()).collect::<Result<Vec<_>>>()?;
            // More than asked for may come at once.
            for keys in keys.chunks(STEP) {
                let unlinked = self.connection.call(redis::cmd("UNLINK").arg(keys), Effect::Write).await?;
                removed += reply::count(unlinked)?;
            }
            if cursor == "0" || cursor.is_empty() {
                return Ok(removed);
            }
        }
    }
}
