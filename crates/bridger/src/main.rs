//! The `bridger` command; all of it is in the library.

// The extender's and the scheduler's work is many small, short-lived allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    bridger::main()
}
