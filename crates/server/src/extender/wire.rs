//! Reads kube-scheduler's extender requests from JSON.
//!
//! In: a request's body. Out: its parts, borrowed from the body wherever the JSON has no escapes. Names are parsed;
//! pods and nodes stay raw JSON, because they are returned unchanged or parsed by another crate.
//!
//! The Go types have no JSON tags: names are capitalised, nil pointers arrive as `null`, and Go matches names
//! case-insensitively, so this module does too. The members of a pod or a node have the usual lower-case names of the
//! API.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A string that is borrowed if possible.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text<'a>(pub Cow<'a, str>);

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<'a>, D::Error> {
        struct Borrowing;
        impl<'de> Visitor<'de> for Borrowing {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            /// Go leaves a string empty for `null`.
            fn visit_unit<E: Error>(self) -> Result<Text<'de>, E> {
                Ok(Text::default())
            }
        }
        // `null` is accepted too, hence not deserialize_str.
        deserializer.deserialize_any(Borrowing)
    }
}

/// A type whose members are matched case-insensitively, as in Go.
trait GoObject<'de>: Default {
    /// Takes the value of a known member; returns false for an unknown one.
    fn take<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error>;
}

struct ObjectVisitor<T>(T);

impl<'de, T: GoObject<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<T, A::Error> {
        while let Some(name) = map.next_key::<Text<'de>>()? {
            if !self.0.take(&name, &mut map)? {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(self.0)
    }
}

macro_rules! go_objects {
    ($($(#[$meta:meta])* $name:ident { $($(#[$note:meta])* $field:ident : $kind:ty = $wire:literal),+ $(,)? })+) => {$(
        $(#[$meta])*
        #[derive(Debug, Default)]
        pub struct $name<'a> {
            $($(#[$note])* pub $field: Option<$kind>,)+
            lifetime: std::marker::PhantomData<&'a ()>,
        }

        impl<'de: 'a, 'a> GoObject<'de> for $name<'a> {
            fn take<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
                $(if name.eq_ignore_ascii_case($wire) {
                    self.$field = map.next_value()?;
                    return Ok(true);
                })+
                Ok(false)
            }
        }

        impl<'de: 'a, 'a> Deserialize<'de> for $name<'a> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_map(ObjectVisitor($name::default()))
            }
        }
    )+};
}

go_objects! {
    /// The request of filter and prioritize. Either `nodes` or `node_names` is given.
    ExtenderArgs {
        pod: &'a RawValue = "Pod",
        nodes: NodeList<'a> = "Nodes",
        node_names: Vec<Text<'a>> = "NodeNames",
    }
    /// Whole nodes, for an extender without a node cache.
    NodeList {
        items: Vec<&'a RawValue> = "items",
    }
    BindingArgs {
        pod_name: Text<'a> = "PodName",
        pod_namespace: Text<'a> = "PodNamespace",
        pod_uid: Text<'a> = "PodUID",
        node: Text<'a> = "Node",
    }
    /// One of the two maps is given: the second one to an extender with a node cache.
    PreemptionArgs {
        pod: &'a RawValue = "Pod",
        victims: Members<'a, Victims<'a>> = "NodeNameToVictims",
        meta_victims: Members<'a, MetaVictims<'a>> = "NodeNameToMetaVictims",
    }
    Victims {
        pods: Vec<&'a RawValue> = "Pods",
        pdb_violations: i64 = "NumPDBViolations",
    }
    MetaVictims {
        pods: Vec<MetaPod<'a>> = "Pods",
        pdb_violations: i64 = "NumPDBViolations",
    }
    MetaPod {
        uid: Text<'a> = "UID",
    }
}

/// A JSON object with arbitrary member names, in document order.
#[derive(Debug)]
pub struct Members<'a, T>(pub Vec<(Text<'a>, T)>);

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for Members<'a, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Members<'de, T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry::<Text<'de>, T>()? {
                    entries.push(entry);
                }
                Ok(Members(entries))
            }
        }
        deserializer.deserialize_map(Entries(std::marker::PhantomData))
    }
}

/// The metadata of a pod or node that is read.
#[derive(serde::Deserialize)]
pub struct Named<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(serde::Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    uid: Text<'a>,
}

/// The name of an object, from its JSON.
pub fn name_of(object: &RawValue) -> Result<Text<'_>, serde_json::Error> {
    serde_json::from_str::<Named<'_>>(object.get()).map(|object| object.metadata.name)
}

/// The UID of an object, from its JSON.
pub fn uid_of(object: &RawValue) -> Result<Text<'_>, serde_json::Error> {
    serde_json::from_str::<Named<'_>>(object.get()).map(|object| object.metadata.uid)
}

/// The nodes of a request: whole nodes, or their names.
#[derive(Debug)]
pub enum Nodes<'a> {
    Names(Vec<Text<'a>>),
    /// Names, with the raw JSON that is returned.
    Whole(Vec<(Text<'a>, &'a RawValue)>),
}

impl<'a> Nodes<'a> {
    /// Names take precedence if both are given. Without either there are no nodes, which Go sends as two nulls.
    pub fn of(args: ExtenderArgs<'a>) -> Result<Nodes<'a>, serde_json::Error> {
        match (args.node_names, args.nodes) {
            (Some(names), _) => Ok(Nodes::Names(names)),
            (None, Some(list)) => {
                let items = list.items.unwrap_or_default();
                let named = items.into_iter().map(|item| Ok((name_of(item)?, item)));
                Ok(Nodes::Whole(named.collect::<Result<_, _>>()?))
            }
            (None, None) => Ok(Nodes::Names(Vec::new())),
        }
    }

    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        match self {
            Nodes::Names(names) => names.iter().map(|name| &**name).collect(),
            Nodes::Whole(nodes) => nodes.iter().map(|(name, _)| &**name).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_go_writes_and_reads_them() {
        let names = br#"{"Pod":{"metadata":{"name":"p"}},"Nodes":null,"NodeNames":["n1","n\u0032"]}"#;
        let args: ExtenderArgs<'_> = serde_json::from_slice(names).expect("a request");
        assert_eq!(args.pod.map(RawValue::get), Some(r#"{"metadata":{"name":"p"}}"#));
        let nodes = Nodes::of(args).expect("nodes");
        assert_eq!(nodes.names(), ["n1", "n2"]);
        let Nodes::Names(names) = nodes else { panic!("names") };
        assert!(matches!(names[0].0, Cow::Borrowed(_)) && matches!(names[1].0, Cow::Owned(_)));

        let whole =
            br#"{"pod":null,"NODES":{"metadata":{},"items":[{"metadata":{"name":"a"},"x":[1, 2]}]},"other":{}}"#;
        let args: ExtenderArgs<'_> = serde_json::from_slice(whole).expect("a request");
        assert!(args.pod.is_none());
        let Nodes::Whole(nodes) = Nodes::of(args).expect("nodes") else { panic!("whole nodes") };
        assert_eq!((&*nodes[0].0, nodes[0].1.get()), ("a", r#"{"metadata":{"name":"a"},"x":[1, 2]}"#));

        let bind = br#"{"PodName":"p","PodNamespace":"ns","PodUID":"u","Node":"n"}"#;
        let args: BindingArgs<'_> = serde_json::from_slice(bind).expect("a request");
        assert_eq!(args.node.as_deref(), Some("n"));

        let preempt = br#"{"Pod":{},"NodeNameToVictims":null,"NodeNameToMetaVictims":
            {"n1":{"Pods":[{"UID":"u1"}],"NumPDBViolations":1},"n2":{"Pods":null,"NumPDBViolations":0}}}"#;
        let args: PreemptionArgs<'_> = serde_json::from_slice(preempt).expect("a request");
        let victims = args.meta_victims.expect("victims").0;
        assert_eq!(victims.len(), 2);
        assert_eq!(victims[0].1.pdb_violations, Some(1));
        assert!(victims[1].1.pods.is_none());
    }

    #[test]
    fn malformed_requests_are_errors() {
        let deep = format!("{{\"NodeNames\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        for body in ["", "[]", "7", "{", r#"{"NodeNames":{}}"#, r#"{"NodeNames":[1]}"#, r#"{"Nodes":[]}"#, &deep] {
            assert!(serde_json::from_str::<ExtenderArgs<'_>>(body).is_err(), "{body:.40}");
        }
        // The nesting inside a pod is not checked here.
        let deep = format!("{{\"Pod\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(serde_json::from_str::<ExtenderArgs<'_>>(&deep).is_ok());
    }
}
