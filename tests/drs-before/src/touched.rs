//! This planner only ever plans from scratch, so nothing is touched.

#[derive(Clone, Debug, Default)]
pub struct Touched;

impl Touched {
    pub fn nodes(&self) -> impl Iterator<Item = model::NodeId> {
        std::iter::empty()
    }

    pub fn removed(&self) -> impl Iterator<Item = model::NodeId> {
        std::iter::empty()
    }

    pub fn terms(&self) -> impl Iterator<Item = model::TermId> {
        std::iter::empty()
    }

    pub fn pods(&self) -> impl Iterator<Item = model::PodId> {
        std::iter::empty()
    }

    pub fn clusters(&self) -> impl Iterator<Item = model::ClusterId> {
        std::iter::empty()
    }
}
