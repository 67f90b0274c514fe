//! A host's name as a Kubernetes label value.
//!
//! In: any name. Out: the name itself if it is a valid label value, else `<readable>--<16 base32 characters>`, where
//! the characters are the first 80 bits of the name's SHA-256.
//!
//! Invariants: the value is valid; it depends on the name only; two names have different values. The last holds because
//! a name that looks encoded is encoded too, so no plain value equals an encoded one, and two encoded values differ in
//! their hash.

use sha2::{Digest, Sha256};

/// The longest label value Kubernetes accepts.
const VALUE_LENGTH_MAX: usize = 63;
const SEPARATOR: &str = "--";
const HASH_LENGTH: usize = 16;
const READABLE_LENGTH_MAX: usize = VALUE_LENGTH_MAX - SEPARATOR.len() - HASH_LENGTH;
/// Replaces a name without any valid character.
const READABLE_FALLBACK: &str = "host";
/// RFC 4648, lower case.
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The label value for a host, cluster or datacenter with this name; `None` if the name is empty.
pub fn label_value(name: &str) -> Option<String> {
    if name.is_empty() {
        None
    } else if is_valid(name) && !looks_encoded(name) {
        Some(name.to_owned())
    } else {
        Some(format!("{}{SEPARATOR}{}", readable(name), hash(name)))
    }
}

/// Whether Kubernetes accepts this as a non-empty label value.
pub(crate) fn is_valid(value: &str) -> bool {
    let bytes = value.as_bytes();
    bytes.len() <= VALUE_LENGTH_MAX
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn looks_encoded(name: &str) -> bool {
    let bytes = name.as_bytes();
    let Some(hash_start) = bytes.len().checked_sub(HASH_LENGTH) else { return false };
    bytes[..hash_start].ends_with(SEPARATOR.as_bytes()) && bytes[hash_start..].iter().all(|byte| BASE32.contains(byte))
}

/// The human-readable part: the name from its first alphanumeric character on, with each invalid character replaced.
fn readable(name: &str) -> String {
    let kept: String =
        name.chars()
            .map(|character| {
                if character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.') { character } else { '-' }
            })
            .skip_while(|character| !character.is_ascii_alphanumeric())
            .take(READABLE_LENGTH_MAX)
            .collect();
    if kept.is_empty() { READABLE_FALLBACK.to_owned() } else { kept }
}

fn hash(name: &str) -> String {
    let digest = Sha256::digest(name.as_bytes());
    // Five bytes give eight base32 characters.
    digest[..HASH_LENGTH / 8 * 5]
        .chunks_exact(5)
        .flat_map(|chunk| {
            let bits = chunk.iter().fold(0u64, |bits, &byte| bits << 8 | u64::from(byte));
            (0..8).rev().map(move |digit| char::from(BASE32[(bits >> (digit * 5) & 31) as usize]))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;

    /// Kubernetes' own pattern, `(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?`, implemented independently of `is_valid`.
    fn kubernetes_accepts(value: &str) -> bool {
        let alphanumeric = |c: char| matches!(c, 'a'..='z' | 'A'..='Z' | '0'..='9');
        value.len() <= 63
            && value.starts_with(alphanumeric)
            && value.ends_with(alphanumeric)
            && value.chars().all(|c| alphanumeric(c) || c == '-' || c == '_' || c == '.')
    }

    #[test]
    fn values_never_change() {
        // A changed value would rewrite every label of a cluster. The hashes come from `printf %s NAME | sha256sum` and
        // base32 of its first ten bytes.
        let long = format!("esx-{}.example.com", "0123456789".repeat(6));
        let cases = [
            ("", None),
            ("esx-1.example.com", Some("esx-1.example.com")),
            ("10.0.0.1", Some("10.0.0.1")),
            ("ESX_1", Some("ESX_1")),
            ("a--b", Some("a--b")),
            ("2001:db8::1", Some("2001-db8--1--ll6rt2cw2hay2f6w")),
            ("::1", Some("1--574opssqmyt74fo5")),
            ("Rack 4 host", Some("Rack-4-host--ezywjvdqysyv43xp")),
            ("-esx-", Some("esx---cqzsnckxvv5tngzh")),
            ("größe", Some("gr--e--2nj2ezy3m6x76ckb")),
            ("日本", Some("host--z4vl6dc34mtmxerk")),
            (" ", Some("host--g2u6p4ojlobp7omx")),
            ("esx--abcdefghijklmnop", Some("esx--abcdefghijklmnop--smzpichm3cyr63x3")),
            (&long, Some("esx-01234567890123456789012345678901234567890--mxyf2mrcapkebed5")),
        ];
        for (name, expected) in cases {
            assert_eq!(label_value(name).as_deref(), expected, "{name:?}");
        }
    }

    #[test]
    fn sixty_three_characters_fit_and_sixty_four_do_not() {
        let fits = "a".repeat(63);
        assert_eq!(label_value(&fits), Some(fits.clone()));
        let value = label_value(&"a".repeat(64)).unwrap();
        assert_eq!((value.len(), looks_encoded(&value)), (63, true));
    }

    /// Typical host names, and names built to collide.
    fn generated_names(count: usize) -> HashSet<String> {
        let mut names = HashSet::new();
        let shared_prefix = "esxi-with-a-very-long-name-that-exceeds-the-limit.rack-17.row-4.building";
        let mut number = 0u64;
        while names.len() < count {
            number += 1;
            let mix = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let rack_host = |number: u64| format!("Rack {} host {number}", mix(number) % 50);
            let mixed = mix(number);
            let plain = match number % 10 {
                0 => format!("2001:db8:{:x}::{number:x}", mixed >> 16),
                1 => format!("{shared_prefix}-{number}.example.com"),
                2 => format!("{shared_prefix}.example.com.{number}"),
                3 => rack_host(number),
                4 => format!("größe-日本-{number}"),
                5 => format!("esx-{number}--{}", hash(&number.to_string())),
                6 => format!("esx-{number}.example.com"),
                7 => format!("esx.{number}_example.com"),
                8 => format!("{}{number}{}", "-".repeat((mixed % 3) as usize), ".".repeat((mixed % 2) as usize)),
                // The encoded value of the name made six numbers ago, used as a name.
                _ => label_value(&rack_host(number - 6)).unwrap(),
            };
            names.insert(plain.replace(' ', if number.is_multiple_of(3) { "-" } else { " " }));
            names.insert(plain);
        }
        names
    }

    #[test]
    fn a_hundred_thousand_names_have_as_many_valid_values() {
        let names = generated_names(100_000);
        let mut by_value = HashMap::new();
        for name in &names {
            let value = label_value(name).unwrap();
            assert!(kubernetes_accepts(&value), "{name:?} -> {value:?}");
            assert_eq!(is_valid(&value), kubernetes_accepts(&value));
            if let Some(other) = by_value.insert(value, name) {
                panic!("{name:?} and {other:?} have the same value");
            }
        }
        assert!(by_value.len() >= 100_000);
    }

    proptest! {
        #[test]
        fn any_name_gives_a_valid_value(name in any::<String>()) {
            match label_value(&name) {
                None => prop_assert!(name.is_empty()),
                Some(value) => prop_assert!(kubernetes_accepts(&value), "{:?}", value),
            }
        }

        #[test]
        fn different_names_have_different_values(
            first in "[a-c: .é_-]{1,4}(--[a-z2-7]{15,17})?",
            second in "[a-c: .é_-]{1,4}(--[a-z2-7]{15,17})?",
        ) {
            prop_assert_eq!(first == second, label_value(&first) == label_value(&second));
            // An encoded value used as a name is encoded again; a plain value is not.
            let value = label_value(&first).unwrap();
            prop_assert_eq!(value == first, label_value(&value).unwrap() == value);
        }

        #[test]
        fn valid_is_what_kubernetes_accepts(value in "[a-cA-C0-2:._-]{0,5}[a-z]{0,60}[._-]?") {
            prop_assert_eq!(is_valid(&value), kubernetes_accepts(&value));
        }
    }
}
