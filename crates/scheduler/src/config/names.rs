//! The rules of Kubernetes for names of labels and resources.
//!
//! In: a name. Out: what is wrong with it, in the words of kube-scheduler without its regular expressions; `None` if
//! nothing is.

const NAME_LENGTH_MAX: usize = 63;
const PREFIX_LENGTH_MAX: usize = 253;
/// The prefix of quotas for resources.
const QUOTA: &str = "requests.";

const CHARACTERS: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const SUBDOMAIN: &str = "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                         characters, '-' or '.', and must start and end with an alphanumeric character";

/// A label key or the name of a resource: a name, or a DNS subdomain and a name.
pub(super) fn qualified_name_problem(name: &str) -> Option<String> {
    let (prefix, name) = match name.split('/').collect::<Vec<_>>()[..] {
        [name] => (None, name),
        [prefix, name] => (Some(prefix), name),
        _ => {
            return Some(format!(
                "a valid label key {CHARACTERS} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
        }
    };
    match prefix {
        Some("") => return Some("prefix part must be non-empty".to_owned()),
        Some(prefix) if prefix.len() > PREFIX_LENGTH_MAX => {
            return Some(format!("prefix part must be no more than {PREFIX_LENGTH_MAX} bytes"));
        }
        Some(prefix) if !prefix.split('.').all(is_domain_label) => return Some(SUBDOMAIN.to_owned()),
        _ => {}
    }
    if name.is_empty() {
        Some("name part must be non-empty".to_owned())
    } else if name.len() > NAME_LENGTH_MAX {
        Some(format!("name part must be no more than {NAME_LENGTH_MAX} bytes"))
    } else if !is_name(name) {
        Some(format!("name part {CHARACTERS}"))
    } else {
        None
    }
}

pub(super) fn label_value_problem(value: &str) -> Option<String> {
    if value.len() > NAME_LENGTH_MAX {
        Some(format!("must be no more than {NAME_LENGTH_MAX} bytes"))
    } else if !value.is_empty() && !is_name(value) {
        Some(format!("a valid label must be an empty string or {}", CHARACTERS.trim_start_matches("must ")))
    } else {
        None
    }
}

/// A resource outside Kubernetes' own domain. A quota for it needs a valid name, too.
pub(super) fn extended_resource_problem(name: &str) -> Option<String> {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    let is_invalid =
        || is_native || name.starts_with(QUOTA) || qualified_name_problem(&format!("{QUOTA}{name}")).is_some();
    qualified_name_problem(name).or_else(|| is_invalid().then(|| "is an invalid extended resource name".to_owned()))
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_domain_label(text: &str) -> bool {
    let is_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(is_alphanumeric)
        && bytes.last().is_some_and(is_alphanumeric)
        && bytes.iter().all(|byte| is_alphanumeric(byte) || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_kubernetes() {
        let long = "x".repeat(64);
        for (name, expected) in [
            ("cpu", None),
            ("example.com/foo", None),
            ("a.b-c/D_e.f", None),
            ("", Some("name part must be non-empty")),
            ("a/", Some("name part must be non-empty")),
            ("/a", Some("prefix part must be non-empty")),
            ("a/b/c", Some("a valid label key must consist")),
            ("-a", Some("name part must consist")),
            ("a b", Some("name part must consist")),
            ("A.com/b", Some("prefix part a lowercase RFC 1123 subdomain")),
            ("a..b/c", Some("prefix part a lowercase RFC 1123 subdomain")),
            (long.as_str(), Some("name part must be no more than 63 bytes")),
        ] {
            let found = qualified_name_problem(name);
            assert_eq!(found.is_some(), expected.is_some(), "{name:?}: {found:?}");
            assert!(found.unwrap_or_default().starts_with(expected.unwrap_or_default()), "{name:?}");
        }
        for (value, is_valid) in [("", true), ("a", true), ("a_b", true), ("-", false), ("a/b", false)] {
            assert_eq!(label_value_problem(value).is_none(), is_valid, "{value:?}");
        }
        for (name, is_extended) in [
            ("example.com/foo", true),
            ("cpu", false),
            ("kubernetes.io/foo", false),
            ("a.kubernetes.io/foo", false),
            ("requests.example.com/foo", false),
            ("no domain/foo", false),
        ] {
            assert_eq!(extended_resource_problem(name).is_none(), is_extended, "{name:?}");
        }
    }
}
