//! Responses of a vCenter: conversations are recorded from the embedded one and replayed, with one response mutated.

mod conversation;
mod inventory;
mod rules;
mod tagging;

#[global_allocator]
static MEMORY: hostile::PeakAlloc = hostile::MEMORY;
