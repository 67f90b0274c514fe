//! The vCenter's wire: SOAP, sessions, the property collector, views, and the methods clients call.

/// What belongs to clients rather than to the inventory: sessions, views, collectors and their filters.
#[derive(Debug, Default)]
pub(crate) struct State {}
