//! Separates write access to the world from read access.
//!
//! In: a world. Out: one [`WorldOwner`], which the runtime keeps, and any number of [`SharedWorld`]s for readers on
//! other threads. Invariant: only the owner can write.

use std::sync::Arc;

use model::World;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Read access to the world.
#[derive(Clone, Debug, Default)]
pub struct SharedWorld(Arc<RwLock<World>>);

impl SharedWorld {
    pub fn read(&self) -> RwLockReadGuard<'_, World> {
        self.0.read()
    }
}

/// Write access to the world.
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

/// The world during one step of a controller. The first access locks it; only [`WorldAccess::write`] locks it for
/// writing.
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
            Guard::None => unreachable!("locked above"),
        }
    }

    /// For assuming and forgetting pods. The other controllers observe every applied event after this step. The loop is
    /// the only writer, so what this step has read before still holds.
    pub fn write(&mut self) -> &mut World {
        if !matches!(self.guard, Guard::Write(_)) {
            self.guard = Guard::None;
            self.guard = Guard::Write(self.world.write());
        }
        match &mut self.guard {
            Guard::Write(world) => world,
            Guard::None | Guard::Read(_) => unreachable!("locked above"),
        }
    }

    /// The changes that this step made.
    pub(super) fn finish(self) -> Vec<Arc<model::WorldChange>> {
        match self.guard {
            Guard::Write(mut world) => world.take_changes(),
            Guard::None | Guard::Read(_) => Vec::new(),
        }
    }
}
