#![doc = include_str!("../../../docs/write-a-plugin.md")]

mod checkout;
mod licence_server;
mod licences;
mod namespace_spread;

use bridger::scheduler::PluginRegistry;

pub use licences::Licences;
pub use namespace_spread::NamespaceSpread;

/// Bridger's plugins and those of this crate.
#[must_use]
pub fn registry() -> PluginRegistry {
    PluginRegistry::standard()
        .with::<NamespaceSpread>()
        .with::<Licences>()
        .with_pre_bind_executor::<Licences, _>(|tools| checkout::Annotate::new(tools.kubernetes().clone()))
        .with_bind_executor::<Licences, _>(|tools| checkout::BindLicensed::new(tools.kubernetes().clone()))
        .with_start(licence_server::start)
}
