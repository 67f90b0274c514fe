//! Mutated inputs for parsers of bytes that come from outside.
//!
//! In: valid samples of an input, and a function that parses one. Out: a failed test, with the number of the input and the
//! input itself in a file, if the parser panics or takes more memory than its input justifies.
//!
//! - `mutation`: one mutated input, determined by its number.
//!
//! A stack overflow ends the process without a message: the number of the input is in `target/tmp/hostile/NAME-last`.
//!
//! Invariants: a number always gives the same input, so `--world NUMBER` replays it; the samples themselves are accepted,
//! so that mutations start from what the parser reads to its end. The memory of the whole process is counted, so every
//! test of a binary is [`alone`].

mod mutation;

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use peak_alloc::PeakAlloc;

use self::mutation::mutated;

/// The allocator of every test binary: `#[global_allocator] static MEMORY: PeakAlloc = hostile::MEMORY;`
pub const MEMORY: PeakAlloc = PeakAlloc;

/// Inputs per run, by default and with `--full`.
const INPUTS: (usize, usize) = (20_000, 1_000_000);

/// The other tests of this binary wait.
#[derive(Debug)]
pub struct Alone(#[allow(dead_code)] MutexGuard<'static, ()>);

#[must_use]
pub fn alone() -> Alone {
    static TEST: Mutex<()> = Mutex::new(());
    Alone(TEST.lock().unwrap_or_else(PoisonError::into_inner))
}

/// What is attacked.
#[derive(Debug)]
pub struct Target<'a> {
    /// Of the file with a failing input.
    pub name: &'a str,
    pub samples: &'a [Vec<u8>],
    /// Texts with a meaning for the parser, which random bytes would never hit.
    pub words: &'a [&'a str],
    pub memory: Memory,
}

/// The memory that one input may take, beyond what is in use before.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub fixed_bytes: usize,
    pub bytes_per_byte: usize,
}

impl Memory {
    const fn of(self, input: usize) -> usize {
        self.fixed_bytes + self.bytes_per_byte * input
    }
}

/// Inputs up to this size show what is fixed, larger ones what depends on the size.
const SMALL: usize = 16 << 10;

/// What a run has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    pub inputs: usize,
    pub accepted: usize,
    /// The most that a small input took.
    pub small_bytes_max: usize,
    /// The most that a larger one took, per byte.
    pub per_byte_max: f64,
    /// The largest share of its limit that one took.
    pub share_max: f64,
    pub slowest: Duration,
}

impl Summary {
    fn note(&mut self, limit: Memory, input: usize, bytes: usize, took: Duration) {
        self.inputs += 1;
        match input {
            ..=SMALL => self.small_bytes_max = self.small_bytes_max.max(bytes),
            _ => self.per_byte_max = self.per_byte_max.max(bytes as f64 / input as f64),
        }
        self.share_max = self.share_max.max(bytes as f64 / limit.of(input) as f64);
        self.slowest = self.slowest.max(took);
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { inputs, accepted, small_bytes_max, per_byte_max, share_max, slowest } = self;
        write!(
            f,
            "{inputs} inputs, {accepted} accepted; memory: {} KiB at most for up to {} KiB, {per_byte_max:.1} bytes per byte \
             for more, {:.0} % of the limit; the slowest took {slowest:.0?}",
            small_bytes_max >> 10,
            SMALL >> 10,
            share_max * 100.0
        )
    }
}

/// One input.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub bytes: &'a [u8],
    /// The number of the sample that it is made from.
    pub sample: usize,
}

/// Parses the samples, then mutated ones. `parse` returns whether the input is accepted.
///
/// # Panics
/// If the parser panics, rejects a sample or takes too much memory.
// The figures of a passed test are part of its output.
#[allow(clippy::print_stdout)]
pub fn attack(_: &Alone, target: &Target<'_>, mut parse: impl FnMut(Input<'_>) -> bool) -> Summary {
    for (sample, bytes) in target.samples.iter().enumerate() {
        assert!(parse(Input { bytes, sample }), "sample {sample} of {} is not accepted", target.name);
    }
    let (mut summary, began) = (Summary::default(), Instant::now());
    let mut last = create(&format!("{}-last", target.name)).expect("a file below target");
    let worlds = testkit::worlds::Worlds::drawn_or_replayed(testkit::count(INPUTS.0, INPUTS.1));
    for number in worlds.numbers() {
        let (sample, input) = mutated(number, target.samples, target.words);
        last.rewind().and_then(|()| writeln!(last, "{number:<20}")).expect("it is written");
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let started = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| parse(Input { bytes: &input, sample })));
        let took = started.elapsed();
        let memory_bytes = MEMORY.peak_usage().saturating_sub(before);
        let memory_bytes_max = target.memory.of(input.len());
        match outcome {
            Err(panic) => fail(target, number, &input, &format!("panicked: {}", text_of(&*panic))),
            Ok(_) if memory_bytes > memory_bytes_max => {
                let why = format!("took {memory_bytes} bytes, at most {memory_bytes_max} are allowed");
                fail(target, number, &input, &why);
            }
            Ok(is_accepted) => {
                summary.note(target.memory, input.len(), memory_bytes, took);
                summary.accepted += usize::from(is_accepted);
            }
        }
    }
    println!("{}, {worlds}: {summary}; {:.0?} in all", target.name, began.elapsed());
    // A single input proves nothing.
    assert!(summary.accepted > 0 || !worlds.are_a_sample(), "{}: none is accepted", target.name);
    summary
}

fn fail(target: &Target<'_>, number: u64, input: &[u8], why: &str) -> ! {
    let name = format!("{}-{number}", target.name);
    let place = match create(&name).and_then(|mut file| file.write_all(input)) {
        Ok(()) => path(&name).display().to_string(),
        Err(error) => format!("the input was not written: {error}"),
    };
    panic!("{}, input {number} of {} bytes {why}; repeat it with --world {number}; {place}", target.name, input.len());
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/tmp/hostile").join(name)
}

fn create(name: &str) -> io::Result<File> {
    let path = path(name);
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    File::create(path)
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a text")
}
