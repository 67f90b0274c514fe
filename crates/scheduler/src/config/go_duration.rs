//! Durations as Go writes them: `15s`, `1m30s`, `1.5h`, `-10ms`.
//!
//! In: the text. Out: nanoseconds, as Go's `time.ParseDuration` reads them; `None` if it rejects the text.

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
    use super::parse;

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
