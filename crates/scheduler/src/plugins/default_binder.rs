//! DefaultBinder: takes every pod; its executor binds it through the API.

use model::NodeId;

use crate::framework::change::ChangeKinds;
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::Bind;
use crate::framework::registry::{NoArgs, Points, Register};
use crate::framework::status::Status;

pub struct DefaultBinder;

impl Plugin for DefaultBinder {
    const NAME: &'static str = "DefaultBinder";
    type State = ();

    fn reads(&self) -> Reads {
        Reads::Node
    }

    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::NONE
    }
}

/// Bind the pod through the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiBinding;

impl Bind for DefaultBinder {
    type Work = ApiBinding;

    fn bind(&self, _: &Cycle<'_>, (): &(), _: NodeId) -> Result<Option<ApiBinding>, Status> {
        Ok(Some(ApiBinding))
    }
}

impl Register for DefaultBinder {
    type Args = NoArgs;

    fn build(_: NoArgs) -> Result<Self, String> {
        Ok(Self)
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.bind()
    }
}
