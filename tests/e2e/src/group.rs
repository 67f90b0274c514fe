//! Groups of tests, and the names of those that must pass.

/// Tests, by the special interest group of Kubernetes that they belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// All of its tests.
    SigScheduling,
    /// Those that need no running container.
    SigApps,
}

impl Group {
    #[must_use]
    pub fn named(name: &str) -> Option<Group> {
        [Group::SigScheduling, Group::SigApps].into_iter().find(|group| group.name() == name)
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Group::SigScheduling => "sig-scheduling",
            Group::SigApps => "sig-apps",
        }
    }

    /// The names that contain `only`, or all.
    #[must_use]
    pub fn expected(self, only: Option<&str>) -> Vec<&'static str> {
        let list = match self {
            Group::SigScheduling => include_str!("../groups/sig-scheduling.txt"),
            Group::SigApps => include_str!("../groups/sig-apps.txt"),
        };
        let names = list.lines().filter(|line| !line.starts_with('#'));
        names.filter(|name| only.is_none_or(|only| name.contains(only))).collect()
    }

    /// Regular expressions that select the tests: parts of what Ginkgo compares, which puts a description of the suite before
    /// the name. The whole of sig-scheduling is selected by the group, so that a test that is not in the list runs too, and
    /// is noticed.
    #[must_use]
    pub fn focus(self, only: Option<&str>) -> Vec<String> {
        match (self, only) {
            (Group::SigScheduling, None) => vec![literal("[sig-scheduling]")],
            _ => self.expected(only).into_iter().map(literal).collect(),
        }
    }
}

/// A regular expression that matches this text.
fn literal(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if character.is_ascii_punctuation() {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_of_their_group() {
        for (group, count) in [(Group::SigScheduling, 30), (Group::SigApps, 52)] {
            let names = group.expected(None);
            assert_eq!((names.len(), names.iter().collect::<BTreeSet<_>>().len()), (count, count), "{group:?}");
            let prefix = format!("[{}] ", group.name());
            assert!(names.iter().all(|name| name.starts_with(&prefix)), "{names:?}");
            assert_eq!(Group::named(group.name()), Some(group));
        }
    }

    #[test]
    fn a_name_is_selected_literally() {
        assert_eq!(Group::SigScheduling.focus(None), [r"\[sig\-scheduling\]"]);
        assert_eq!(
            Group::SigScheduling.focus(Some("pods of a service")),
            [r"\[sig\-scheduling\] Multi\-AZ Clusters should spread the pods of a service across zones \[Serial\]"]
        );
        assert_eq!(Group::SigScheduling.focus(Some("no such test")), Vec::<String>::new());
    }
}
