//! Which VMs may be nodes: all of them, or those in given folders or resource pools, or with given tags.
//!
//! In: names or paths from the settings; the folders and resource pools above a VM, and whether it has a tag. Out:
//! whether the VM counts. A kubelet reports its own UUID, so a rooted node can claim to be any VM. It cannot move a VM to
//! another folder, nor tag it.
//!
//! Invariant: without settings every VM counts; otherwise a VM counts only if it is known to be in one of them, at any
//! depth, or to have one of the tags itself.

/// Of folders and pools, a name such as `k8s`, or the end of an inventory path such as `prod/vm/k8s`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmScope {
    pub folders: Vec<String>,
    pub resource_pools: Vec<String>,
    /// `tag` or `category:tag`.
    pub tags: Vec<String>,
}

impl VmScope {
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.folders.is_empty() && self.resource_pools.is_empty() && self.tags.is_empty()
    }

    /// `folders` and `pools`: the names of what contains the VM, the outermost first.
    pub(crate) fn admits(&self, folders: &[String], pools: &[String], is_tagged: bool) -> bool {
        let is_in = |wanted: &[String], path: &[String]| {
            wanted.iter().any(|wanted| {
                let wanted: Vec<&str> = wanted.split('/').filter(|name| !name.is_empty()).collect();
                // Any folder above counts, so the path may go on below it.
                !wanted.is_empty() && path.windows(wanted.len()).any(|names| names.iter().eq(wanted.iter()))
            })
        };
        self.is_everything() || is_tagged || is_in(&self.folders, folders) || is_in(&self.resource_pools, pools)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_5_only_vms_of_the_given_folders_and_pools_count() {
        let names = |text: &str| text.split('/').filter(|it| !it.is_empty()).map(str::to_owned).collect::<Vec<_>>();
        let scope = |folders: &[&str], pools: &[&str]| VmScope {
            folders: folders.iter().map(|it| (*it).to_owned()).collect(),
            resource_pools: pools.iter().map(|it| (*it).to_owned()).collect(),
            tags: Vec::new(),
        };
        for (folders, pools, in_folder, in_pool, expected) in [
            (&[][..], &[][..], "DC0/vm", "Resources", true),
            (&["k8s"], &[], "DC0/vm/k8s", "Resources", true),
            (&["k8s"], &[], "DC0/vm/k8s/prod", "Resources", true),
            (&["k8s"], &[], "DC0/vm/k8s-other", "Resources", false),
            (&["/DC0/vm/k8s"], &[], "DC0/vm/k8s", "Resources", true),
            (&["/DC0/vm/k8s"], &[], "DC1/vm/k8s", "Resources", false),
            (&["k8s"], &[], "", "Resources", false),
            (&[], &["nodes"], "DC0/vm", "Resources/nodes", true),
            (&["k8s"], &["nodes"], "DC0/vm", "Resources/nodes", true),
            (&["k8s"], &["nodes"], "DC0/vm", "Resources/others", false),
            (&["/"], &[], "DC0/vm", "Resources", false),
        ] {
            let found = scope(folders, pools).admits(&names(in_folder), &names(in_pool), false);
            assert_eq!(found, expected, "{folders:?} {pools:?} {in_folder} {in_pool}");
        }
        let tags = VmScope { tags: vec!["k8s".to_owned()], ..VmScope::default() };
        assert_eq!([true, false].map(|is_tagged| tags.admits(&[], &[], is_tagged)), [true, false]);
    }
}
