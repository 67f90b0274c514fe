//! Durations as Go writes them: `15s`, `1m30s`, `1.5h`, `-10ms`.
//!
//! In: the text. Out: nanoseconds, as Go's `time.ParseDuration` reads them; `None` if it rejects the text. And back, as
//! Go's `Duration.String` writes them.

use std::time::Duration;

/// With their nanoseconds. The micro sign exists twice: as a sign and as a Greek letter.
const UNITS: &[(&str, i64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

pub(super) fn parse(text: &str) -> Option<i64> {
    let (is_negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut nanoseconds = 0_i64;
    loop {
        let (number, after) = split_at_first(rest, |character| !is_of_number(character));
        let (name, after) = split_at_first(after, is_of_number);
        let (_, unit) = UNITS.iter().find(|(unit, _)| *unit == name)?;
        nanoseconds = nanoseconds.checked_add(times(number, *unit)?)?;
        rest = after;
        if rest.is_empty() {
            return Some(if is_negative { -nanoseconds } else { nanoseconds });
        }
    }
}

/// `15m0s`, `1.5s`, `20ms`.
pub(crate) fn display(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    let decimal = |unit: u128, name: &str| {
        let digits = unit.ilog10() as usize;
        let text = format!("{}.{:0digits$}", nanoseconds / unit, nanoseconds % unit);
        let shown = text.trim_end_matches('0').trim_end_matches('.');
        format!("{shown}{name}")
    };
    match nanoseconds {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanoseconds}ns"),
        1_000..1_000_000 => decimal(1_000, "\u{b5}s"),
        1_000_000..1_000_000_000 => decimal(1_000_000, "ms"),
        _ => {
            let whole = duration.as_secs();
            let (hours, minutes) = (whole / 3600, whole / 60 % 60);
            let rest = Duration::new(whole % 60, duration.subsec_nanos());
            let seconds = match rest.subsec_nanos() {
                0 => rest.as_secs().to_string(),
                fraction => format!("{}.{}", rest.as_secs(), format!("{fraction:09}").trim_end_matches('0')),
            };
            match (hours, minutes) {
                (0, 0) => format!("{seconds}s"),
                (0, _) => format!("{minutes}m{seconds}s"),
                _ => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

fn is_of_number(character: char) -> bool {
    character.is_ascii_digit() || character == '.'
}

fn split_at_first(text: &str, is_wanted: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(is_wanted).unwrap_or(text.len()))
}

/// A decimal number times a unit. What is less than a nanosecond is dropped.
fn times(number: &str, unit: i64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanoseconds = whole.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.chars() {
        place /= 10;
        nanoseconds = nanoseconds.checked_add(i64::from(digit.to_digit(10)?) * place)?;
    }
    Some(nanoseconds)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{display, parse};

    #[test]
    fn durations_are_written_as_in_go() {
        for (nanoseconds, expected) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1\u{b5}s"),
            (2_200_000, "2.2ms"),
            (20_000_000, "20ms"),
            (1_000_000_000, "1s"),
            (3_300_000_000, "3.3s"),
            (60_000_000_000, "1m0s"),
            (900_000_000_000, "15m0s"),
            (245_000_000_001, "4m5.000000001s"),
            (3_600_000_000_000, "1h0m0s"),
            (18_367_001_000_000, "5h6m7.001s"),
        ] {
            let duration = Duration::from_nanos(nanoseconds);
            assert_eq!(display(duration), expected);
            assert_eq!(parse(expected), i64::try_from(nanoseconds).ok());
        }
    }

    #[test]
    fn durations_are_read_as_in_go() {
        for (text, expected) in [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("-0", Some(0)),
            ("15s", Some(15_000_000_000)),
            ("+5s", Some(5_000_000_000)),
            ("-10ms", Some(-10_000_000)),
            ("1m30s", Some(90_000_000_000)),
            ("10m0s", Some(600_000_000_000)),
            ("1.5h", Some(5_400_000_000_000)),
            (".5s", Some(500_000_000)),
            ("5.s", Some(5_000_000_000)),
            ("1.5h30m", Some(7_200_000_000_000)),
            ("3\u{b5}s7ns", Some(3_007)),
            ("0.3ns", Some(0)),
            ("", None),
            ("-", None),
            ("15", None),
            ("s", None),
            (".s", None),
            ("1.2.3s", None),
            ("15 s", None),
            ("15 seconds", None),
            ("1d", None),
            ("1s ", None),
            ("10000000h", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }
}
