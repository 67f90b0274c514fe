//! Kubernetes quantities: `250m`, `1.5Gi`, `2e3`, or a plain number.
//!
//! In: the JSON. Out: billionths of a unit, which is as fine as Kubernetes goes, or thousandths and units, rounded up as the
//! scheduler does. Values that are too large are capped at what Kubernetes can represent. Shares no code with the client;
//! `quantities.tsv` holds what a real API server makes of the same texts.

use serde_json::Value;

const PER_UNIT: i128 = 1_000_000_000;
const LARGEST: i128 = i64::MAX as i128 * PER_UNIT;
/// Digits of a fraction that are computed with; of further ones only matters whether one is not 0.
const FRACTION_DIGITS: usize = 18;

/// In billionths; `None` if it is not a quantity.
pub(crate) fn billionths(quantity: &Value) -> Option<i128> {
    match quantity {
        Value::String(text) => parse(text),
        Value::Number(number) => parse(&number.to_string()),
        _ => None,
    }
}

/// In thousandths; an unreadable quantity counts as 0.
pub(crate) fn thousandths(quantity: &Value) -> i64 {
    rounded_up(quantity, PER_UNIT / 1000)
}

/// In whole units; an unreadable quantity counts as 0.
pub(crate) fn units(quantity: &Value) -> i64 {
    rounded_up(quantity, PER_UNIT)
}

fn rounded_up(quantity: &Value, part: i128) -> i64 {
    let billionths = billionths(quantity).unwrap_or(0);
    let parts = billionths.div_euclid(part) + i128::from(billionths.rem_euclid(part) > 0);
    i64::try_from(parts).unwrap_or(if parts < 0 { i64::MIN } else { i64::MAX })
}

fn parse(text: &str) -> Option<i128> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let number_end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // The API server reads a quantity without digits (`m`) as 0; only an empty text is not a quantity.
    if text.is_empty() || fraction.contains('.') {
        return None;
    }
    let (factor, divisor) = scale(suffix)?;
    let (near, far) = fraction.split_at(fraction.len().min(FRACTION_DIGITS));
    let is_finer = far.bytes().any(|digit| digit != b'0');
    let near = number_of(&format!("{near:0<FRACTION_DIGITS$}"));
    let scaled = number_of(whole).saturating_mul(10_i128.pow(18)).saturating_add(near).saturating_mul(factor);
    let divisor = 10_i128.pow(9) * divisor;
    let quotient = scaled / divisor;
    let is_exact = scaled % divisor == 0 && !is_finer;
    let magnitude = (quotient + i128::from(!is_exact)).min(LARGEST);
    Some(if negative { -magnitude } else { magnitude })
}

/// Of decimal digits; capped, because larger numbers are capped in the end.
fn number_of(digits: &str) -> i128 {
    let add = |value: i128, digit: u8| value.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
    digits.bytes().fold(0, add).min(i128::from(i64::MAX))
}

/// The factor and the divisor that a suffix stands for.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    let decimal = |power: u32| Some((10_i128.pow(power), 1));
    let binary = |power: u32| Some((1_i128 << (10 * power), 1));
    match suffix {
        "" => Some((1, 1)),
        "n" => Some((1, 1_000_000_000)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1000)),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = exponent.unsigned_abs().min(18);
            if exponent < 0 { Some((1, 10_i128.pow(power))) } else { decimal(power) }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn thousandths_and_units_are_rounded_up() {
        for (quantity, expected_thousandths, expected_units) in [
            (json!("250m"), 250, 1),
            (json!("2"), 2000, 2),
            (json!(2), 2000, 2),
            (json!("0.5"), 500, 1),
            (json!("1.5Gi"), 1_610_612_736_000, 1_610_612_736),
            (json!("64Mi"), 67_108_864_000, 67_108_864),
            (json!("1k"), 1_000_000, 1000),
            (json!("2e3"), 2_000_000, 2000),
            (json!("1500u"), 2, 1),
            (json!("-1"), -1000, -1),
            (json!("lots"), 0, 0),
            (json!("1.2.3"), 0, 0),
            (json!(null), 0, 0),
            (json!("99999999999Ei"), i64::MAX, i64::MAX),
        ] {
            assert_eq!(thousandths(&quantity), expected_thousandths, "{quantity}");
            assert_eq!(units(&quantity), expected_units, "{quantity}");
        }
    }

    #[test]
    fn quantities_are_read_as_a_real_api_server_reads_them() {
        let vectors = include_str!("quantities.tsv").lines().filter(|line| !line.starts_with('#'));
        let mut count = 0;
        for line in vectors {
            let (text, read) = line.split_once('\t').expect("a text and what the server makes of it");
            match read {
                "unreadable" => assert_eq!(parse(text), None, "{text:?}"),
                "negative" => assert!(parse(text).is_some_and(|value| value < 0), "{text:?}"),
                canonical => {
                    assert!(parse(text).is_some(), "{text:?}");
                    let (read, expected) = (thousandths(&json!(text)), thousandths(&json!(canonical)));
                    assert_eq!(read, expected, "{text:?} is {canonical}");
                }
            }
            count += 1;
        }
        assert!(count >= 30, "{count} vectors");
    }
}
