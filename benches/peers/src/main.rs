//! The same work on the layer and on other crates for Idempotency-Key, in turns within one run.
//!
//! `cargo run --release --ignore-rust-version -- memory`, and `-- redis` with a server in `REDIS_URL`.

mod memory;
mod redis;
mod stacks;
mod sums;
mod work;

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wants = |what: &str| words.is_empty() || words.iter().any(|word| word == what);
    // Called from a worker of the runtime, as a server would.
    if wants("memory") {
        runtime.block_on(runtime.spawn(memory::run()))?;
    }
    if wants("redis") {
        let url = std::env::var("REDIS_URL").map_err(|_| "REDIS_URL is not set: tests/run --with …")?;
        runtime.block_on(runtime.spawn(redis::run(url)))??;
    }
    Ok(())
}
