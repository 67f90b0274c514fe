//! Kubernetes quantities: `250m`, `1.5Gi`, `2e3`, or a plain number.
//!
//! All values are rounded up, as the scheduler does, and saturate instead of overflowing.

use serde_json::Value;

/// In thousandths; a quantity that cannot be parsed counts as 0.
pub(crate) fn thousandths(quantity: &Value) -> i64 {
    let parsed = match quantity {
        Value::String(text) => parse_thousandths(text),
        Value::Number(number) => parse_thousandths(&number.to_string()),
        _ => None,
    };
    parsed.unwrap_or(0)
}

/// In whole units.
pub(crate) fn units(quantity: &Value) -> i64 {
    let thousandths = thousandths(quantity);
    // A saturated value stays at the maximum.
    if thousandths == i64::MAX {
        i64::MAX / 1000
    } else {
        thousandths.div_euclid(1000) + i64::from(thousandths.rem_euclid(1000) > 0)
    }
}

fn parse_thousandths(text: &str) -> Option<i64> {
    let text = text.trim();
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let number_end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || whole.len() > 20 || fraction.len() > 9 {
        return None;
    }
    let digits: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let (factor, divisor) = scale(suffix)?;
    let divisor = divisor.checked_mul(10_i128.pow(u32::try_from(fraction.len()).ok()?))?;
    let scaled = digits.saturating_mul(factor).saturating_mul(1000);
    let scaled = if negative { -scaled } else { scaled };
    let rounded_up = scaled.div_euclid(divisor) + i128::from(scaled.rem_euclid(divisor) > 0);
    Some(i64::try_from(rounded_up).unwrap_or(if negative { i64::MIN } else { i64::MAX }))
}

/// The factor and the divisor of a suffix.
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
            match exponent {
                0..=18 => decimal(exponent.unsigned_abs()),
                -9..0 => Some((1, 10_i128.pow(exponent.unsigned_abs()))),
                _ => None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities() {
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
            (json!("99999999999Ei"), i64::MAX, i64::MAX / 1000),
        ] {
            assert_eq!(thousandths(&quantity), expected_thousandths, "{quantity}");
            assert_eq!(units(&quantity), expected_units, "{quantity}");
        }
    }
}
