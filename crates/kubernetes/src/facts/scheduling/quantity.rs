//! Exact Kubernetes quantities: `250m`, `1.5Gi`, `2e3`, or a plain number.
//!
//! In: the JSON. Out: billionths of a unit, which is the precision of Kubernetes; finer values are rounded away from 0.
//! Sums and comparisons use billionths and are rounded at the end, as in kube-scheduler.
//!
//! Invariant: nothing overflows; a larger value becomes the largest value of Kubernetes, which is 2^63 - 1 units.

use std::fmt;
use std::iter::Sum;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

const PER_UNIT: i128 = 1_000_000_000;
const LARGEST: i128 = i64::MAX as i128 * PER_UNIT;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quantity(i128);

impl Quantity {
    pub(crate) const fn units(units: i64) -> Self {
        Self(units as i128 * PER_UNIT)
    }

    pub(crate) const fn milli(thousandths: i64) -> Self {
        Self(thousandths as i128 * (PER_UNIT / 1000))
    }

    /// In whole units, rounded away from 0.
    pub(crate) fn as_units(self) -> i64 {
        self.in_parts_of(PER_UNIT)
    }

    /// In thousandths, rounded away from 0.
    pub(crate) fn as_milli(self) -> i64 {
        self.in_parts_of(PER_UNIT / 1000)
    }

    fn in_parts_of(self, part: i128) -> i64 {
        let parts = (self.0.abs() + part - 1) / part * self.0.signum();
        i64::try_from(parts).unwrap_or(if parts < 0 { i64::MIN } else { i64::MAX })
    }

    fn parse(text: &str) -> Option<Self> {
        let (sign, unsigned) = match text.as_bytes().first()? {
            b'-' => (-1, &text[1..]),
            b'+' => (1, &text[1..]),
            _ => (1, text),
        };
        let number_end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(number_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // The API server reads a quantity without digits (`m`) as 0; only an empty text is not a quantity.
        if fraction.contains('.') {
            return None;
        }
        let scale = Scale::of(suffix)?;
        let mut magnitude = digits(whole).saturating_mul(PER_UNIT);
        // Digits beyond the 18th only affect rounding, for every suffix.
        let (near, far) = fraction.split_at(fraction.len().min(18));
        let near_value = digits(near);
        let below = 10_i128.pow(near.len() as u32);
        let is_finer = far.bytes().any(|digit| digit != b'0');
        magnitude = match scale {
            Scale::Times(factor) => {
                let fraction = near_value.saturating_mul(factor).saturating_mul(PER_UNIT);
                magnitude.saturating_mul(factor).saturating_add(divide_up(fraction, below, is_finer))
            }
            Scale::Divided(divisor) => {
                // One division over all digits, so that the value is rounded once.
                let all = magnitude.saturating_mul(below).saturating_add(near_value.saturating_mul(PER_UNIT));
                divide_up(all, below.saturating_mul(divisor), is_finer)
            }
        };
        Some(Self(sign * magnitude.min(LARGEST)))
    }
}

fn digits(text: &str) -> i128 {
    let add = |value: i128, digit: u8| value.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
    // Larger values are capped later anyway; this stays far from overflow.
    text.bytes().fold(0, add).min(i128::from(i64::MAX))
}

fn divide_up(value: i128, divisor: i128, is_finer: bool) -> i128 {
    let quotient = value / divisor;
    quotient + i128::from(value % divisor != 0 || (is_finer && quotient * divisor == value))
}

/// The effect of a suffix on the number before it.
enum Scale {
    Times(i128),
    Divided(i128),
}

impl Scale {
    fn of(suffix: &str) -> Option<Self> {
        let decimal = |power: u32| Self::Times(10_i128.pow(power));
        let binary = |power: u32| Self::Times(1 << (10 * power));
        Some(match suffix {
            "" => Self::Times(1),
            "n" => Self::Divided(1_000_000_000),
            "u" => Self::Divided(1_000_000),
            "m" => Self::Divided(1000),
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
                // Exponents beyond 18 make no difference in the range of Kubernetes.
                let power = exponent.unsigned_abs().min(18);
                if exponent < 0 { Self::Divided(10_i128.pow(power)) } else { decimal(power) }
            }
        })
    }
}

impl std::ops::Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        // Far from overflow: each is below 2^93, and a pod has fewer than 2^30 containers.
        Self(self.0.saturating_add(other.0))
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(quantities: I) -> Self {
        quantities.fold(Self::default(), |sum, quantity| sum + quantity)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reading;

        impl Visitor<'_> for Reading {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Quantity, E> {
                Quantity::parse(text.trim()).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }

            fn visit_i64<E: Error>(self, units: i64) -> Result<Quantity, E> {
                Ok(Quantity::units(units))
            }

            fn visit_u64<E: Error>(self, units: u64) -> Result<Quantity, E> {
                Ok(Quantity::units(i64::try_from(units).unwrap_or(i64::MAX)))
            }

            fn visit_f64<E: Error>(self, units: f64) -> Result<Quantity, E> {
                Quantity::parse(&units.to_string()).ok_or_else(|| E::invalid_value(Unexpected::Float(units), &self))
            }
        }

        deserializer.deserialize_any(Reading)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        // Text; billionths, thousandths and units.
        let cases: [(&str, i128, i64, i64); 26] = [
            ("0", 0, 0, 0),
            ("1", PER_UNIT, 1000, 1),
            ("+5", 5 * PER_UNIT, 5000, 5),
            ("-1500m", -1_500_000_000, -1500, -2),
            ("100m", 100_000_000, 100, 1),
            ("0.1", 100_000_000, 100, 1),
            (".5", 500_000_000, 500, 1),
            ("5.", 5_000_000_000, 5000, 5),
            ("100u", 100_000, 1, 1),
            ("1n", 1, 1, 1),
            ("0.1n", 1, 1, 1),
            ("1500u", 1_500_000, 2, 1),
            ("0.0000000001", 1, 1, 1),
            ("1.0000000000000000000001", PER_UNIT + 1, 1001, 2),
            ("1k", 1000 * PER_UNIT, 1_000_000, 1000),
            ("1Ki", 1024 * PER_UNIT, 1_024_000, 1024),
            ("1.5Gi", 1_610_612_736 * PER_UNIT, 1_610_612_736_000, 1_610_612_736),
            ("0.1Ki", 102_400_000_000, 102_400, 103),
            ("2e3", 2000 * PER_UNIT, 2_000_000, 2000),
            ("2E3", 2000 * PER_UNIT, 2_000_000, 2000),
            ("2e-3", 2_000_000, 2, 1),
            ("1E", 1_000_000_000_000_000_000 * PER_UNIT, i64::MAX, 1_000_000_000_000_000_000),
            ("4Ei", (4_i128 << 60) * PER_UNIT, i64::MAX, 4 << 60),
            ("100Ei", LARGEST, i64::MAX, i64::MAX),
            ("99999999999999999999999999999999", LARGEST, i64::MAX, i64::MAX),
            ("1e99", 1_000_000_000_000_000_000 * PER_UNIT, i64::MAX, 1_000_000_000_000_000_000),
        ];
        for (text, billionths, milli, units) in cases {
            let quantity = Quantity::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((quantity.0, quantity.as_milli(), quantity.as_units()), (billionths, milli, units), "{text}");
        }
        for text in ["", "1.2.3", "1 Gi", "1gi", "1e", "1e3m", "ten", "0x10"] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
    }

    #[test]
    fn quantities_are_read_as_a_real_api_server_reads_them() {
        let vectors = include_str!("quantities.tsv").lines().filter(|line| !line.starts_with('#'));
        let mut count = 0;
        for line in vectors {
            let (text, read) = line.split_once('\t').expect("a text and what the server makes of it");
            let quantity = Quantity::parse(text);
            match read {
                "unreadable" => assert_eq!(quantity, None, "{text:?}"),
                "negative" => assert!(quantity.is_some_and(|quantity| quantity.0 < 0), "{text:?}"),
                canonical => {
                    let milli = |quantity: Option<Quantity>| quantity.expect(text).as_milli();
                    assert_eq!(milli(quantity), milli(Quantity::parse(canonical)), "{text:?} is {canonical}");
                }
            }
            count += 1;
        }
        assert!(count >= 40, "{count} vectors");
    }

    #[test]
    fn numbers_are_quantities_too() {
        for (json, milli) in [("2", 2000), ("\"2\"", 2000), ("0.25", 250), ("-1", -1000), ("1e3", 1_000_000)] {
            let quantity: Quantity = serde_json::from_str(json).expect(json);
            assert_eq!(quantity.as_milli(), milli, "{json}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_rejected(text in "[-+]?[0-9.]{0,40}[a-zA-Z]{0,2}[-0-9]{0,12}") {
            if let Some(quantity) = Quantity::parse(&text) {
                prop_assert!(quantity.0.abs() <= LARGEST);
                prop_assert!(quantity.as_units().unsigned_abs() <= quantity.as_milli().unsigned_abs());
            }
        }

        #[test]
        fn formatted_values_are_parsed_back(milli in 0i64..1_000_000_000_000, whole in 0i64..1_000_000) {
            prop_assert_eq!(Quantity::parse(&format!("{milli}m")).map(Quantity::as_milli), Some(milli));
            prop_assert_eq!(Quantity::parse(&format!("{whole}Ki")).map(Quantity::as_units), Some(whole * 1024));
        }
    }
}
