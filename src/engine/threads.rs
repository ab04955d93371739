//! The threads of one pipeline's handlers. Each pipeline has its own, so that the operating system
//! shares the processor among pipelines: however many guests of one of them compute without end, they
//! take turns on its threads, and the guests of the others do not stand in that queue.

use tokio::runtime::{Builder, Handle, Runtime};

/// As many threads as attempts can run at once, and no more than there are processors.
pub(super) struct Threads {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Threads {
    /// Starts them.
    ///
    /// # Errors
    /// The operating system gives no more threads.
    pub(super) fn start(concurrency: usize) -> std::io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(concurrency.clamp(1, processors)).thread_name("handler").enable_all();
        let runtime = builder.build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Nothing runs on them any more that anyone waits for.
            runtime.shutdown_background();
        }
    }
}
