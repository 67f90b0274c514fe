//! The registry of available plugins.
//!
//! In: types that implement [`Register`]: how to build them from their arguments, and which points they extend. Out:
//! plugins by name, ready for a profile. A custom scheduler adds its plugin: `Registry::default().with::<Mine>()`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::framework::erased::{
    AnyBind, AnyFilter, AnyNotified, AnyPermit, AnyPlugin, AnyPostBind, AnyPostFilter, AnyPreBind, AnyPreEnqueue,
    AnyPreFilter, AnyPreScore, AnyQueueSort, AnyReserve, AnyScore,
};
use crate::framework::plugin::Plugin;
use crate::framework::points::{
    Bind, Filter, Notified, Permit, PostBind, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort, Reserve,
    Score,
};

/// How a plugin is built and registered.
pub trait Register: Plugin + Sized {
    /// The plugin's `args` in `pluginConfig`, without `apiVersion` and `kind`. [`NoArgs`] if it takes none.
    type Args: DeserializeOwned + Default;

    /// An `Err` says what is wrong with the arguments, in one line.
    fn build(args: Self::Args) -> Result<Self, String>;

    /// Declares the points it extends: `points.pre_filter().filter()`.
    fn points(points: Points<Self>) -> Points<Self>;
}

/// No arguments: any field is an error.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoArgs {}

/// A plugin and the points it extends, while it is being registered.
pub struct Points<P> {
    plugin: Arc<P>,
    built: Built,
}

macro_rules! points {
    ($($method:ident: $point:ident, $any:ident;)+) => {
        /// A plugin that is ready for use, with a trait object for each point it extends.
        #[derive(Clone)]
        pub(crate) struct Built {
            pub(crate) plugin: Arc<dyn AnyPlugin>,
            $(pub(crate) $method: Option<Arc<dyn $any>>,)+
        }

        impl<P: Plugin> Points<P> {
            fn none(plugin: P) -> Self {
                let plugin = Arc::new(plugin);
                let built = Built { plugin: Arc::clone(&plugin) as Arc<dyn AnyPlugin>, $($method: None,)+ };
                Self { plugin, built }
            }

            $(
                #[must_use]
                pub fn $method(mut self) -> Self
                where
                    P: $point,
                {
                    self.built.$method = Some(Arc::clone(&self.plugin) as Arc<dyn $any>);
                    self
                }
            )+
        }
    };
}

points! {
    queue_sort: QueueSort, AnyQueueSort;
    pre_enqueue: PreEnqueue, AnyPreEnqueue;
    pre_filter: PreFilter, AnyPreFilter;
    filter: Filter, AnyFilter;
    post_filter: PostFilter, AnyPostFilter;
    pre_score: PreScore, AnyPreScore;
    score: Score, AnyScore;
    reserve: Reserve, AnyReserve;
    permit: Permit, AnyPermit;
    pre_bind: PreBind, AnyPreBind;
    bind: Bind, AnyBind;
    post_bind: PostBind, AnyPostBind;
    notified: Notified, AnyNotified;
}

type Build = fn(Option<&Value>) -> Result<Built, String>;

/// The plugins that profiles can name.
#[derive(Clone, Default)]
pub struct Registry {
    builders: BTreeMap<&'static str, Build>,
}

impl Registry {
    /// Adds a plugin. It replaces a plugin with the same name.
    #[must_use]
    pub fn with<P: Register>(mut self) -> Self {
        self.builders.insert(P::NAME, build::<P>);
        self
    }

    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.builders.keys().copied()
    }

    pub fn contains(&self, name: &str) -> bool {
        self.builders.contains_key(name)
    }

    /// `None` if the name is not registered.
    pub(crate) fn build(&self, name: &str, args: Option<&Value>) -> Option<Result<Built, String>> {
        self.builders.get(name).map(|build| build(args))
    }
}

fn build<P: Register>(args: Option<&Value>) -> Result<Built, String> {
    let args = match args {
        None | Some(Value::Null) => P::Args::default(),
        Some(args) => P::Args::deserialize(args).map_err(|error| error.to_string())?,
    };
    Ok(P::points(Points::none(P::build(args)?)).built)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::cycle::Cycle;
    use crate::framework::status::Status;

    struct Sample(u32);

    #[derive(Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SampleArgs {
        limit: u32,
    }

    impl Plugin for Sample {
        const NAME: &'static str = "Sample";
        type State = ();
    }

    impl PreEnqueue for Sample {
        fn pre_enqueue(&self, _: &Cycle<'_>) -> Status {
            Status::Success
        }
    }

    impl Register for Sample {
        type Args = SampleArgs;

        fn build(args: SampleArgs) -> Result<Self, String> {
            if args.limit > 9 { Err(format!("limit {} is above 9", args.limit)) } else { Ok(Self(args.limit)) }
        }

        fn points(points: Points<Self>) -> Points<Self> {
            assert!(points.plugin.0 < 10);
            points.pre_enqueue()
        }
    }

    #[test]
    fn a_plugin_is_built_from_its_arguments_and_extends_the_points_it_declares() {
        let registry = Registry::default().with::<Sample>();
        let built = registry.build("Sample", Some(&serde_json::json!({"limit": 3}))).unwrap().unwrap();
        assert!(built.pre_enqueue.is_some() && built.filter.is_none() && built.plugin.name() == "Sample");
        assert!(registry.build("Other", None).is_none());
        for (args, expected) in [
            (serde_json::json!({"limit": 12}), "limit 12 is above 9"),
            (serde_json::json!({"lmit": 1}), "unknown field `lmit`"),
        ] {
            let error = registry.build("Sample", Some(&args)).unwrap().err().unwrap();
            assert!(error.contains(expected), "{error}");
        }
    }
}
