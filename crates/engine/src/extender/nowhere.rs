//! No outside, for whoever only asks: in tests, and in measurements of answers alone.
//!
//! Every binding counts as done, and nobody is told of anything.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::ExtenderPorts;
use crate::ports::{Binder, Binding, Notice, NoticeBoard, PortError};

struct Nowhere;

impl Binder for Nowhere {
    fn bind<'a>(&'a self, _: &'a Binding) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async { Ok(()) })
    }
}

impl NoticeBoard for Nowhere {
    fn post<'a>(&'a self, _: &'a Notice) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async { Ok(()) })
    }
}

impl ExtenderPorts {
    /// Every binding counts as done, and nobody is told of anything.
    #[must_use]
    pub fn nowhere() -> ExtenderPorts {
        ExtenderPorts { binder: Arc::new(Nowhere), notices: Arc::new(Nowhere) }
    }
}
