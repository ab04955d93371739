//! Makes sure that a pipeline's stream and group are there, and fit what the pipeline says.

use crate::backend::{Backend, Error, NewGroup, Start};
use crate::event::{GroupKey, Name};

/// Attempts of a group that is created without saying how many.
const MAX_ATTEMPTS_DEFAULT: u32 = 5;

/// What a pipeline needs of the store.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The pipeline's group.
    pub group: GroupKey,
    /// Partitions of the stream, where the file says; a stream that is created without gets one.
    pub stream_partitions: Option<u32>,
    /// The partitions that the pipeline serves.
    pub partitions: PartitionChoice,
    /// Attempts of the group, where the file says.
    pub max_attempts: Option<u32>,
    /// Where the group begins if it is created.
    pub start: Start,
}

/// The partitions that a pipeline serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionChoice {
    /// All that the stream has.
    All,
    /// These.
    List(Vec<u32>),
}

/// What the store has for a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The partitions to serve, each of which exists.
    pub partitions: Vec<u32>,
    /// The group's attempts.
    pub max_attempts: u32,
    /// The stream was created just now.
    pub created_stream: bool,
    /// The group was created just now.
    pub created_group: bool,
}

/// Why a pipeline does not fit the store.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The stream has another number of partitions.
    #[error(
        "the stream `{stream}` has {found} partitions, but the file says {wanted}: a stream's partitions never \
         change; write `partitions = {found}` in `[streams.{stream}]`, or use another stream"
    )]
    Partitions {
        /// The stream.
        stream: Name,
        /// What it has.
        found: u32,
        /// What the file says.
        wanted: u32,
    },
    /// The pipeline serves a partition that the stream lacks.
    #[error("the stream `{stream}` has no partition {partition}: it has {found}, counted from 0")]
    NoSuchPartition {
        /// The stream.
        stream: Name,
        /// The partition asked for.
        partition: u32,
        /// How many there are.
        found: u32,
    },
    /// The group has another number of attempts.
    #[error(
        "the group `{}` of the stream `{}` has max_attempts = {found}, but the pipeline says {wanted}: \
         leave `max_attempts` out to take the group's, or use another group", group.group, group.stream
    )]
    MaxAttempts {
        /// The group.
        group: GroupKey,
        /// What it has.
        found: u32,
        /// What the file says.
        wanted: u32,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Error),
}

/// Creates the stream and the group where they are missing, and compares them with what is wanted
/// where they are not.
///
/// # Errors
/// They do not fit, or the store fails.
pub async fn prepare(backend: &dyn Backend, wanted: &Wanted) -> Result<Prepared, PrepareError> {
    let (created_stream, found) =
        create_missing(backend, &wanted.group.stream, wanted.stream_partitions).await?;
    let partitions = fit_partitions(wanted, found)?;
    let new = NewGroup {
        max_attempts: wanted.max_attempts.unwrap_or(MAX_ATTEMPTS_DEFAULT),
        start: wanted.start.clone(),
    };
    let created_group = match backend.create_group(&wanted.group, new.clone()).await {
        Ok(()) => true,
        Err(Error::GroupExists(_)) => false,
        Err(Error::InvalidName(error)) => {
            backend.group_info(&wanted.group).await.map_err(|_| Error::InvalidName(error))?;
            false
        }
        Err(error) => return Err(error.into()),
    };
    let max_attempts = if created_group { new.max_attempts } else { fit_attempts(backend, wanted).await? };
    Ok(Prepared { partitions, max_attempts, created_stream, created_group })
}

/// Creates a stream where it is missing. Answers whether it was, and how many partitions it has.
async fn create_missing(
    backend: &dyn Backend,
    stream: &Name,
    partitions: Option<u32>,
) -> Result<(bool, u32), Error> {
    let created = match backend.create_stream(stream, partitions.unwrap_or(1)).await {
        Ok(()) => true,
        Err(Error::StreamExists(_)) => false,
        // A name that we would not create can still be used where it exists.
        Err(Error::InvalidName(error)) => {
            backend.stream_info(stream).await.map_err(|_| Error::InvalidName(error))?;
            false
        }
        Err(error) => return Err(error),
    };
    let info = backend.stream_info(stream).await?;
    Ok((created, u32::try_from(info.partitions.len()).unwrap_or(u32::MAX)))
}

/// A stream that a plugin may append to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The stream.
    pub stream: Name,
    /// Its partitions, where the file says; one that is created without gets one.
    pub partitions: Option<u32>,
}

/// Creates the streams that a plugin may append to, where they are missing, and says so.
///
/// # Errors
/// One of them is not as the file says, or the store fails.
pub(super) async fn prepare_outputs(backend: &dyn Backend, outputs: &[Output]) -> Result<(), PrepareError> {
    for output in outputs {
        let (created, found) = create_missing(backend, &output.stream, output.partitions).await?;
        fit_output(output, found)?;
        if created {
            tracing::info!(stream = %output.stream, partitions = found, "created the stream");
        }
    }
    Ok(())
}

/// Whether a stream that has `found` partitions is as the file says.
///
/// # Errors
/// The file says another number.
pub fn fit_output(output: &Output, found: u32) -> Result<(), PrepareError> {
    match output.partitions {
        Some(wanted) if wanted != found => {
            Err(PrepareError::Partitions { stream: output.stream.clone(), found, wanted })
        }
        _ => Ok(()),
    }
}

/// The partitions that a pipeline serves of a stream that has `found` of them.
///
/// # Errors
/// The file says another number of partitions, or names one that the stream lacks.
pub fn fit_partitions(wanted: &Wanted, found: u32) -> Result<Vec<u32>, PrepareError> {
    let stream = &wanted.group.stream;
    if let Some(wanted) = wanted.stream_partitions
        && wanted != found
    {
        return Err(PrepareError::Partitions { stream: stream.clone(), found, wanted });
    }
    match &wanted.partitions {
        PartitionChoice::All => Ok((0..found).collect()),
        PartitionChoice::List(list) => match list.iter().find(|partition| **partition >= found) {
            Some(&partition) => {
                Err(PrepareError::NoSuchPartition { stream: stream.clone(), partition, found })
            }
            None => Ok(list.clone()),
        },
    }
}

/// The attempts of a group that exists.
///
/// # Errors
/// The file says another number, or the store fails.
pub async fn fit_attempts(backend: &dyn Backend, wanted: &Wanted) -> Result<u32, PrepareError> {
    let found = backend.group_info(&wanted.group).await?.max_attempts;
    match wanted.max_attempts {
        Some(wanted_attempts) if wanted_attempts != found => {
            Err(PrepareError::MaxAttempts { group: wanted.group.clone(), found, wanted: wanted_attempts })
        }
        _ => Ok(found),
    }
}
