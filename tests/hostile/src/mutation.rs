//! Mutations of an input: of its bytes, of its structure, and with texts that mean something to its parser.
//!
//! In: a number, samples, words. Out: one input of at most [`BYTES_MAX`], with the number of its sample. Pure: the number
//! alone decides.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Larger inputs are rejected by their size, before they are parsed.
const BYTES_MAX: usize = 256 << 10;
/// Mutations of one input.
const STEPS_MAX: usize = 6;
/// How often a part is repeated at once: enough for deep nesting and long lists.
const REPEATS_MAX: usize = 20_000;

/// Texts that mean something in most formats.
const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    ",",
    ":",
    "null",
    "true",
    "-1",
    "0",
    "1e999",
    "-0",
    "9223372036854775808",
    "18446744073709551616",
    "1.7976931348623157e309",
    "\u{0}",
    "\u{feff}",
    "\u{202e}",
    "é",
    "",
];

pub(crate) fn mutated(number: u64, samples: &[Vec<u8>], words: &[&str]) -> (usize, Vec<u8>) {
    let mut random = ChaCha8Rng::seed_from_u64(number);
    let sample = random.random_range(0..samples.len());
    let mut input = samples[sample].clone();
    for _ in 0..random.random_range(1..=STEPS_MAX) {
        step(&mut random, &mut input, samples, words);
        input.truncate(BYTES_MAX);
    }
    (sample, input)
}

fn step(random: &mut ChaCha8Rng, input: &mut Vec<u8>, samples: &[Vec<u8>], words: &[&str]) {
    let part = part_of(random, input.len());
    let at = part.start;
    match random.random_range(0..12u8) {
        0 => {
            let bit = 1 << random.random_range(0..8);
            if let Some(byte) = input.get_mut(at) {
                *byte ^= bit;
            }
        }
        1 => {
            let byte = random.random();
            if let Some(old) = input.get_mut(at) {
                *old = byte;
            }
        }
        2 => drop(input.drain(part)),
        3 => input.truncate(at),
        4 => {
            let other = &samples[random.random_range(0..samples.len())];
            let from = part_of(random, other.len());
            drop(input.splice(part, other[from].iter().copied()));
        }
        5 => {
            let moved = input[part].to_vec();
            let to = random.random_range(0..=input.len());
            drop(input.splice(to..to, moved));
        }
        6 => {
            let repeated = input[part].to_vec();
            repeat(random, input, at, &repeated);
        }
        7 => {
            let bytes: Vec<u8> = (0..random.random_range(1..16)).map(|_| random.random()).collect();
            drop(input.splice(part, bytes));
        }
        8 => {
            let word = word(random, words);
            repeat(random, input, at, word.as_bytes());
        }
        9 => number(random, input),
        _ => {
            let word = word(random, words);
            drop(input.splice(part, word.bytes()));
        }
    }
}

/// Replaces a number in the input.
fn number(random: &mut ChaCha8Rng, input: &mut Vec<u8>) {
    let starts: Vec<usize> = (0..input.len())
        .filter(|at| input[*at].is_ascii_digit() && (*at == 0 || !input[at - 1].is_ascii_digit()))
        .collect();
    if starts.is_empty() {
        return;
    }
    let start = starts[random.random_range(0..starts.len())];
    let end = (start..input.len()).find(|at| !input[*at].is_ascii_digit()).unwrap_or(input.len());
    let value: i128 = match random.random_range(0..4u8) {
        0 => random.random_range(-2..3),
        1 => 1 << random.random_range(0..100),
        2 => (1 << random.random_range(0..100)) - 1,
        _ => -(1 << random.random_range(0..100)),
    };
    drop(input.splice(start..end, value.to_string().into_bytes()));
}

fn word<'a>(random: &mut ChaCha8Rng, words: &[&'a str]) -> &'a str {
    let at = random.random_range(0..WORDS.len() + 2 * words.len());
    WORDS.get(at).copied().unwrap_or_else(|| words[(at - WORDS.len()) / 2])
}

fn repeat(random: &mut ChaCha8Rng, input: &mut Vec<u8>, at: usize, what: &[u8]) {
    if what.is_empty() {
        return;
    }
    // Mostly a few times.
    let most = if random.random_range(0..8u8) == 0 { REPEATS_MAX } else { 8 };
    let times = random.random_range(1..=most).min(BYTES_MAX / what.len() + 1);
    drop(input.splice(at..at, what.repeat(times)));
}

/// A part of something of this length: mostly a short one.
fn part_of(random: &mut ChaCha8Rng, length: usize) -> std::ops::Range<usize> {
    let start = random.random_range(0..=length);
    let most = if random.random_range(0..4u8) == 0 { length } else { 24 };
    let end = (start + random.random_range(0..=most)).min(length);
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_always_gives_the_same_input_and_others_differ() {
        let samples = [b"{\"a\": [1, 22, 333]}".to_vec(), b"<a><b/></a>".to_vec()];
        let all = || -> Vec<Vec<u8>> { (0..2000).map(|number| mutated(number, &samples, &["&x;"]).1).collect() };
        let inputs = all();
        assert_eq!(inputs, all());
        assert!(inputs.iter().all(|input| input.len() <= BYTES_MAX));
        let distinct: std::collections::BTreeSet<&Vec<u8>> = inputs.iter().collect();
        assert!(distinct.len() > 1700, "{}", distinct.len());
        assert!(inputs.iter().any(|input| input.windows(3).any(|part| part == b"&x;")));
        assert!(inputs.iter().any(|input| input.len() > 10_000), "some are large");
    }
}
