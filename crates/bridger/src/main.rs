//! The `bridger` binary. All of its code is in the library.

// The extender and the scheduler make many small, short-lived allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    bridger::main()
}
