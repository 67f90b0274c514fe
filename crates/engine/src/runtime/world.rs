//! Who may change the world, and who may only read it.
//!
//! In: a world. Out: one [`WorldOwner`], which the runtime keeps, and any number of [`SharedWorld`]s for readers on other threads.
//! Invariant: without the owner nobody can write.

use std::sync::Arc;

use model::World;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The world as others read it.
#[derive(Clone, Debug, Default)]
pub struct SharedWorld(Arc<RwLock<World>>);

impl SharedWorld {
    pub fn read(&self) -> RwLockReadGuard<'_, World> {
        self.0.read()
    }
}

/// The one who changes it.
#[derive(Debug)]
pub struct WorldOwner(SharedWorld);

impl WorldOwner {
    #[must_use]
    pub fn new(world: World) -> WorldOwner {
        WorldOwner(SharedWorld(Arc::new(RwLock::new(world))))
    }

    #[must_use]
    pub fn shared(&self) -> SharedWorld {
        self.0.clone()
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, World> {
        self.0.0.write()
    }

    pub(super) fn access(&self) -> WorldAccess<'_> {
        WorldAccess { world: &self.0.0, guard: Guard::None }
    }
}

enum Guard<'w> {
    None,
    Read(RwLockReadGuard<'w, World>),
    Write(RwLockWriteGuard<'w, World>),
}

/// The world during one step of a controller: locked when it is first asked for, and for writing only if it is to change.
pub struct WorldAccess<'w> {
    world: &'w RwLock<World>,
    guard: Guard<'w>,
}

impl WorldAccess<'_> {
    pub fn read(&mut self) -> &World {
        if let Guard::None = self.guard {
            self.guard = Guard::Read(self.world.read());
        }
        match &self.guard {
            Guard::Read(world) => world,
            Guard::Write(world) => world,
            Guard::None => unreachable!("it was locked above"),
        }
    }

    /// To assume and forget pods. Every event that is applied reaches the other controllers after this step. Nobody else writes,
    /// so what was read before in this step is still true.
    pub fn write(&mut self) -> &mut World {
        if !matches!(self.guard, Guard::Write(_)) {
            self.guard = Guard::None;
            self.guard = Guard::Write(self.world.write());
        }
        match &mut self.guard {
            Guard::Write(world) => world,
            Guard::None | Guard::Read(_) => unreachable!("it was locked above"),
        }
    }

    /// What this step changed.
    pub(super) fn finish(self) -> Vec<Arc<model::WorldChange>> {
        match self.guard {
            Guard::Write(mut world) => world.take_changes(),
            Guard::None | Guard::Read(_) => Vec::new(),
        }
    }
}
