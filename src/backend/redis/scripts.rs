//! The scripts that run inside the server, and the codes that they answer with.
//!
//! Each script is a file in `lua/` whose head states its keys, arguments and reply. What several of
//! them share stands in `lua/lib/` and is put in front. They are called by digest; a server that has
//! forgotten them gets them again.

use std::sync::LazyLock;

use redis::Cmd;

/// What a script answers first, where it can answer in more than one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// Done.
    Ok,
    /// It is there already.
    Exists,
    /// The stream has no metadata.
    StreamNotFound,
    /// The group has no metadata.
    GroupNotFound,
    /// The stream has another number of partitions than the caller thought.
    Changed,
    /// A counter is no number.
    NotANumber,
    /// The group has metadata, but the stream does not know it.
    Lost,
    /// A rewind of the group is under way.
    Rewinding,
}

impl Code {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Ok, "OK"),
        (Self::Exists, "EXISTS"),
        (Self::StreamNotFound, "STREAM_NOT_FOUND"),
        (Self::GroupNotFound, "GROUP_NOT_FOUND"),
        (Self::Changed, "CHANGED"),
        (Self::NotANumber, "NOT_A_NUMBER"),
        (Self::Lost, "LOST"),
        (Self::Rewinding, "REWINDING"),
    ];

    /// The code that a script answered with.
    pub(super) fn parse(number: i64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).map(|(code, _)| *code)
    }

    /// The codes as a line of Lua.
    fn prelude() -> String {
        let names: Vec<&str> = Self::ALL.iter().map(|(_, name)| *name).collect();
        let numbers: Vec<String> = (0..Self::ALL.len()).map(|number| number.to_string()).collect();
        format!("local {} = {}\n", names.join(", "), numbers.join(", "))
    }
}

const TIME: &str = include_str!("lua/lib/time.lua");
const ISO: &str = include_str!("lua/lib/iso.lua");
const GROUP: &str = include_str!("lua/lib/group.lua");
const RETAKE: &str = include_str!("lua/lib/retake.lua");
const AUTHORIZE: &str = include_str!("lua/lib/authorize.lua");
const ID: &str = include_str!("lua/lib/id.lua");
const WITNESS: &str = include_str!("lua/lib/witness.lua");
const START: &str = include_str!("lua/lib/start.lua");
const ADD: &str = include_str!("lua/lib/add.lua");
const FINISH: &str = include_str!("lua/lib/finish.lua");
const ADVANCE: &str = include_str!("lua/lib/advance.lua");
const COPY: &str = include_str!("lua/lib/copy.lua");
const OFFER: &str = include_str!("lua/lib/offer.lua");
const REDELIVER: &str = include_str!("lua/lib/redeliver.lua");

/// A script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    /// Creates a stream.
    CreateStream,
    /// Finds where a group has to stand.
    Start,
    /// Creates a group.
    CreateGroup,
    /// Makes a lost group again.
    RestoreGroup,
    /// Appends a batch.
    Append,
    /// Begins a claim.
    Begin,
    /// Leases what a claim has read.
    Lease,
    /// Leases what was parked and is due.
    Due,
    /// Leases what another let go or lost.
    Sweep,
    /// Leases one suspect.
    Alone,
    /// Prolongs leases.
    Renew,
    /// Writes verdicts.
    Settle,
    /// Forgets consumers.
    Retire,
    /// Begins to replay, reset or delete a group.
    RewindBegin,
    /// Goes on with that in one partition.
    Rewind,
    /// Takes away a group of which nothing is left.
    DeleteGroup,
    /// Delivers dead letters again.
    Redrive,
    /// Delivers events of the log again.
    Redeliver,
    /// Lists redriven events that are not pending.
    Unlisted,
    /// Removes old entries.
    Trim,
    /// Looks for damage.
    Heal,
    /// Mends a gap in the index.
    HealGap,
    /// Removes fences that belong to nothing.
    HealFences,
    /// Acks, with effects.
    Commit,
}

impl Script {
    const ALL: [Self; 24] = [
        Self::CreateStream,
        Self::Start,
        Self::CreateGroup,
        Self::RestoreGroup,
        Self::Append,
        Self::Begin,
        Self::Lease,
        Self::Due,
        Self::Sweep,
        Self::Alone,
        Self::Renew,
        Self::Settle,
        Self::Retire,
        Self::RewindBegin,
        Self::Rewind,
        Self::DeleteGroup,
        Self::Redrive,
        Self::Redeliver,
        Self::Unlisted,
        Self::Trim,
        Self::Heal,
        Self::HealGap,
        Self::HealFences,
        Self::Commit,
    ];

    /// Shared parts and body.
    fn parts(self) -> (&'static [&'static str], &'static str) {
        match self {
            Self::CreateStream => (&[TIME, ISO], include_str!("lua/create_stream.lua")),
            Self::Start => (&[TIME, ID, START], include_str!("lua/start.lua")),
            Self::CreateGroup => (&[TIME, GROUP, ID, WITNESS], include_str!("lua/create_group.lua")),
            Self::RestoreGroup => (&[TIME, GROUP, ID, START, WITNESS], include_str!("lua/restore_group.lua")),
            Self::Append => (&[TIME, ISO, ADD], include_str!("lua/append.lua")),
            Self::Begin => (&[TIME, GROUP, ID, WITNESS], include_str!("lua/begin.lua")),
            Self::Lease => (&[TIME, ID, START, RETAKE], include_str!("lua/lease.lua")),
            Self::Due => (&[TIME, RETAKE], include_str!("lua/due.lua")),
            Self::Sweep => (&[TIME, RETAKE], include_str!("lua/sweep.lua")),
            Self::Alone => (&[TIME, RETAKE], include_str!("lua/alone.lua")),
            Self::Renew => (&[TIME, ID, START, AUTHORIZE], include_str!("lua/renew.lua")),
            Self::Settle => {
                (&[TIME, ISO, ID, START, AUTHORIZE, ADVANCE, FINISH, COPY], include_str!("lua/settle.lua"))
            }
            Self::Retire => (&[ID, WITNESS], include_str!("lua/retire.lua")),
            Self::RewindBegin => (&[TIME], include_str!("lua/rewind_begin.lua")),
            Self::Rewind => {
                (&[TIME, GROUP, ID, START, WITNESS, ADVANCE, OFFER], include_str!("lua/rewind.lua"))
            }
            Self::DeleteGroup => (&[TIME], include_str!("lua/delete_group.lua")),
            Self::Redrive => (&[TIME, COPY, OFFER, REDELIVER], include_str!("lua/redrive.lua")),
            Self::Redeliver => (&[TIME, COPY, OFFER, REDELIVER], include_str!("lua/redeliver.lua")),
            Self::Unlisted => (&[], include_str!("lua/unlisted.lua")),
            Self::Trim => (&[TIME, ID, ADVANCE], include_str!("lua/trim.lua")),
            Self::Heal => (&[TIME, GROUP, ID, WITNESS, ADVANCE], include_str!("lua/heal.lua")),
            Self::HealGap => (&[TIME, ADVANCE], include_str!("lua/heal_gap.lua")),
            Self::Commit => {
                (&[TIME, ISO, ID, START, AUTHORIZE, ADVANCE, FINISH, ADD], include_str!("lua/commit.lua"))
            }
            Self::HealFences => (&[TIME], include_str!("lua/heal_fences.lua")),
        }
    }

    fn source(self) -> String {
        self.source_with("")
    }

    /// The source with something put between what is shared and the body.
    fn source_with(self, more: &str) -> String {
        let (shared, body) = self.parts();
        let mut source = Code::prelude();
        for part in shared.iter().chain([&more, &body]) {
            source.push_str(part);
        }
        source
    }

    /// A call of this script by its digest; keys and arguments are to be added, in this order.
    pub(super) fn call(self, keys: &[String]) -> Cmd {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(LOADED[self as usize].get_hash()).arg(keys.len()).arg(keys);
        cmd
    }
}

#[cfg(debug_assertions)]
impl Script {
    /// The same call with every lease taken for good: for tests that must notice.
    pub(super) fn call_unfenced(self, keys: &[String]) -> Cmd {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(self.source_with("local function authorize(_, _, _, sequence) return 'd', sequence end\n"))
            .arg(keys.len())
            .arg(keys);
        cmd
    }
}

/// The sources with their digests, in the order of [`Script::ALL`].
static LOADED: LazyLock<Vec<redis::Script>> =
    LazyLock::new(|| Script::ALL.iter().map(|script| redis::Script::new(&script.source())).collect());

/// The commands that give a server all scripts.
pub(super) fn load_all() -> redis::Pipeline {
    let mut pipe = redis::pipe();
    for script in Script::ALL {
        pipe.cmd("SCRIPT").arg("LOAD").arg(script.source());
    }
    pipe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_scripts_stand_at_their_numbers() {
        for (number, (code, _)) in Code::ALL.iter().enumerate() {
            assert_eq!(*code as usize, number);
            assert_eq!(Code::parse(i64::try_from(number).unwrap()), Some(*code));
        }
        assert_eq!(Code::parse(-1), None);
        for (number, script) in Script::ALL.iter().enumerate() {
            assert_eq!(*script as usize, number);
        }
    }

    #[test]
    fn every_script_states_its_contract() {
        for script in Script::ALL {
            let (_, body) = script.parts();
            for part in ["-- KEYS", "-- ARGV", "-- Reply"] {
                assert!(body.contains(part), "{script:?} has no `{part}`");
            }
        }
    }
}
