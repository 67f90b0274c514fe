//! Where in a YAML file something is.
//!
//! In: the text, which was parsed before, and the path of a value. Out: the line of the value's key, or of the item of a
//! list; if the file lacks the value, the line of the nearest part around it. Invariant: one pass that keeps nothing of
//! the text, within the limits of the parser.

use std::cell::Cell;
use std::fmt;

use scheduler::PathStep;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// `None` if not even the first step is in the file.
pub(super) fn line_of(text: &str, path: &[PathStep]) -> Option<u64> {
    let line = Cell::new(None);
    // The line is known once it is found, whatever follows.
    let _ = serde_saphyr::with_deserializer_from_str(text, |document| {
        Follow { steps: path, is_item: false, line: &line }.deserialize(document)
    });
    line.get()
}

/// Goes from a value to the part that the steps lead to.
struct Follow<'a> {
    steps: &'a [PathStep],
    /// Of a list: the first key is on the line of the item.
    is_item: bool,
    line: &'a Cell<Option<u64>>,
}

impl Follow<'_> {
    /// 0: the parser does not know the line.
    fn found(&self, line: u64) {
        if line > 0 {
            self.line.set(Some(line));
        }
    }
}

impl<'de> DeserializeSeed<'de> for Follow<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.steps.is_empty() {
            return IgnoredAny::deserialize(deserializer).map(|_| ());
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Follow<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut is_first = true;
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            if is_first && self.is_item {
                self.found(key.referenced.line());
            }
            is_first = false;
            match self.steps {
                [PathStep::Field(name), rest @ ..] if *name == key.value => {
                    self.found(key.referenced.line());
                    map.next_value_seed(Follow { steps: rest, is_item: false, line: self.line })?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        for index in 0.. {
            let is_there = match self.steps {
                [PathStep::Index(wanted)] if *wanted == index => {
                    let item = list.next_element::<Spanned<IgnoredAny>>()?;
                    item.inspect(|item| self.found(item.referenced.line())).is_some()
                }
                [PathStep::Index(wanted), rest @ ..] if *wanted == index => {
                    list.next_element_seed(Follow { steps: rest, is_item: true, line: self.line })?.is_some()
                }
                _ => list.next_element::<IgnoredAny>()?.is_some(),
            };
            if !is_there {
                break;
            }
        }
        Ok(())
    }

    // The file has a plain value where the path goes on.

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# A comment.
kind: Some
profiles:
- schedulerName: a
  plugins:
    score:
      enabled: [{name: x},
        {name: y}]
-
  schedulerName: b
- {schedulerName: c, plugins: {}}
- plain
\"ü\": {deep: {deeper: 1}}
";

    #[test]
    fn a_path_leads_to_the_line_of_its_key_or_item() {
        let field = |name: &str| PathStep::Field(name.to_owned());
        let (profiles, enabled, index) = (field("profiles"), field("enabled"), PathStep::Index);
        for (path, expected) in [
            (vec![], None),
            (vec![field("kind")], Some(2)),
            (vec![profiles.clone()], Some(3)),
            (vec![profiles.clone(), index(0)], Some(4)),
            (vec![profiles.clone(), index(0), field("plugins")], Some(5)),
            (vec![profiles.clone(), index(0), field("plugins"), field("score"), enabled.clone(), index(0)], Some(7)),
            (
                vec![
                    profiles.clone(),
                    index(0),
                    field("plugins"),
                    field("score"),
                    enabled.clone(),
                    index(1),
                    field("name"),
                ],
                Some(8),
            ),
            (vec![profiles.clone(), index(1), field("schedulerName")], Some(10)),
            (vec![profiles.clone(), index(2), field("plugins")], Some(11)),
            (vec![field("ü"), field("deep"), field("deeper")], Some(13)),
            // What the file lacks is where it would be.
            (vec![field("missing")], None),
            (vec![field("kind"), field("missing")], Some(2)),
            (vec![field("kind"), index(1)], Some(2)),
            (vec![profiles.clone(), index(9)], Some(3)),
            (vec![profiles.clone(), field("missing")], Some(3)),
            (vec![profiles.clone(), index(1), field("plugins"), field("score")], Some(10)),
            (vec![profiles.clone(), index(2), field("plugins"), field("score")], Some(11)),
            (vec![profiles.clone(), index(3), field("plugins")], Some(3)),
            (vec![profiles, index(0), field("plugins"), field("score"), enabled, index(7)], Some(7)),
        ] {
            assert_eq!(line_of(TEXT, &path), expected, "{path:?}");
        }
        // JSON is YAML, too.
        assert_eq!(line_of("{\n \"kind\":\n  5}", &[field("kind")]), Some(2));
    }

    #[test]
    fn anchors_and_merged_keys_are_followed() {
        let text = "one: &one\n  a: 1\n  b: {c: 2}\ntwo:\n  <<: *one\n  d: 4\nthree: *one\n";
        let field = |name: &str| PathStep::Field(name.to_owned());
        assert_eq!(line_of(text, &[field("two"), field("d")]), Some(6));
        assert!(line_of(text, &[field("two"), field("b"), field("c")]).is_some_and(|line| line >= 3));
        assert!(line_of(text, &[field("three"), field("a")]).is_some_and(|line| line >= 2));
    }
}
