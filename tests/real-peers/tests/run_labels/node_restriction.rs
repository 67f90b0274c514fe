//! A kubelet that writes the host label of its own node, on a kube-apiserver with the admission plugin NodeRestriction.

use anyhow::{Result, ensure};
use testkit::{Bridger, ControlPlane, Kubectl, Vcsim, VcsimOptions, eventually};

use crate::{KEY, RUN, SOON, add_node, environment, host_of};

/// NodeRestriction lets no kubelet set labels with this prefix.
const PROTECTED: &str = "node-restriction.kubernetes.io/host";

#[tokio::test]
async fn number_4_a_kubelet_cannot_write_a_host_label_under_node_restriction() -> Result<()> {
    let control_plane = ControlPlane::start_with(&["--enable-admission-plugins=NodeRestriction"]).await?;
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    add_node(&control_plane, &vcsim, "DC0_C0_RP0_VM0").await?;
    let node = "dc0-c0-rp0-vm0";
    let arguments = [RUN, &["--host-label", PROTECTED]].concat();
    let mut bridger = Bridger::start(&arguments, &environment(&control_plane, &vcsim))?;
    bridger.prints("Listening", SOON).await?;
    let host = host_of(&vcsim, "DC0_C0_RP0_VM0").await?;
    let admin = control_plane.kubectl();
    let label = async || {
        admin
            .run(&[
                "get",
                "node",
                node,
                "-o",
                &format!("jsonpath={{.metadata.labels['{}']}}", PROTECTED.replace('.', "\\.")),
            ])
            .await
    };
    eventually(SOON, || async {
        let label = label().await?;
        ensure!(label == host, "{label:?} instead of {host:?}\n{}", bridger.output());
        Ok(())
    })
    .await?;

    let grant = ["create", "clusterrolebinding", "kubelets", "--clusterrole=system:node", "--group=system:nodes"];
    admin.run(&grant).await?;
    let kubeconfig = control_plane.kubeconfig_for(&format!("system:node:{node}"), &["system:nodes"])?;
    let kubelet = Kubectl::new(control_plane.peers(), &kubeconfig);
    let claim = |key: &str| format!("{key}=elsewhere");
    // It may change other labels of its node, the default key among them. The grant takes a moment.
    eventually(SOON, || async { kubelet.run(&["label", "--overwrite", "node", node, &claim(KEY)]).await }).await?;
    for change in [&claim(PROTECTED), &format!("{PROTECTED}-")] {
        let refused = kubelet.try_run(&["label", "--overwrite", "node", node, change]).await?;
        ensure!(refused.code != Some(0) && refused.stderr.contains("not allowed to modify labels"), "{refused:?}");
    }
    assert_eq!(label().await?, host);
    Ok(())
}
