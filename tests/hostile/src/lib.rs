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
//! so that mutations start from what the parser reads to its end. A test binary has one such test and nothing else,
//! because the memory of the whole process is counted.

mod mutation;

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

pub use peak_alloc::PeakAlloc;

use self::mutation::mutated;

/// The allocator of every test binary: `#[global_allocator] static MEMORY: PeakAlloc = hostile::MEMORY;`
pub const MEMORY: PeakAlloc = PeakAlloc;

/// Inputs per run, by default and with `--full`.
const INPUTS: (usize, usize) = (20_000, 1_000_000);

/// What is attacked.
#[derive(Debug)]
pub struct Target<'a> {
    /// Of the file with a failing input.
    pub name: &'a str,
    pub samples: &'a [Vec<u8>],
    /// Texts with a meaning for the parser, which random bytes would never hit.
    pub words: &'a [&'a str],
    /// Memory that one input may take beyond [`BYTES_PER_BYTE_MAX`] times its size.
    pub memory_bytes_fixed: usize,
}

/// A tree of values takes far more than its text, but in proportion to it.
pub const BYTES_PER_BYTE_MAX: usize = 256;

/// What a run has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub inputs: usize,
    pub accepted: usize,
    /// The most that one input took.
    pub memory_bytes_max: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { inputs, accepted, memory_bytes_max } = self;
        write!(f, "{inputs} inputs, {accepted} accepted, at most {} KiB each", memory_bytes_max >> 10)
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
pub fn attack(target: &Target<'_>, mut parse: impl FnMut(Input<'_>) -> bool) -> Summary {
    for (sample, bytes) in target.samples.iter().enumerate() {
        assert!(parse(Input { bytes, sample }), "sample {sample} of {} is not accepted", target.name);
    }
    let mut summary = Summary::default();
    let mut last = create(&format!("{}-last", target.name)).expect("a file below target");
    for number in testkit::worlds::Worlds::drawn_or_replayed(testkit::count(INPUTS.0, INPUTS.1)).numbers() {
        let (sample, input) = mutated(number, target.samples, target.words);
        last.rewind().and_then(|()| writeln!(last, "{number:<20}")).expect("it is written");
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let outcome = catch_unwind(AssertUnwindSafe(|| parse(Input { bytes: &input, sample })));
        let memory_bytes = MEMORY.peak_usage().saturating_sub(before);
        let memory_bytes_max = target.memory_bytes_fixed + BYTES_PER_BYTE_MAX * input.len();
        match outcome {
            Err(panic) => fail(target, number, &input, &format!("panicked: {}", text_of(&*panic))),
            Ok(_) if memory_bytes > memory_bytes_max => {
                fail(
                    target,
                    number,
                    &input,
                    &format!("took {memory_bytes} bytes, at most {memory_bytes_max} are allowed"),
                );
            }
            Ok(is_accepted) => {
                summary.inputs += 1;
                summary.accepted += usize::from(is_accepted);
                summary.memory_bytes_max = summary.memory_bytes_max.max(memory_bytes);
            }
        }
    }
    println!("{}: {summary}", target.name);
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
