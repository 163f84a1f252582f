//! Asks any CSI driver to create a volume twice and to delete it twice: `csi-check unix:///csi/csi.sock`.
//!
//! For testing third-party drivers. Prints the driver's responses, and fails if they are not what the client expects.
#![allow(clippy::print_stdout)]

use berth_provisioner::csi::{Client, ClientSettings, NoSecrets};
use berth_provisioner::parameters::Parameters;
use berth_provisioner::request::{Backing, Naming, Request};
use std::collections::BTreeMap;
use std::error::Error;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("usage: csi-check ADDRESS")?;
    let client = Client::connect(&address, ClientSettings::default()).await?;
    println!("{:?}", client.identity());
    let claim = serde_json::from_str(
        r#"{"metadata": {"name": "check", "namespace": "default", "uid": "6f1c2b9e-0000-4000-8000-000000000001"},
            "spec": {"accessModes": ["ReadWriteOnce"]}}"#,
    )?;
    let request = Request {
        name: Naming::default().volume(&claim),
        claim,
        class: serde_json::from_str("{}")?,
        parameters: Parameters::default(),
        selected_node: None,
        requirement: None,
        bytes: 1 << 30,
        held_for: None,
        content: None,
        mutable_parameters: std::collections::BTreeMap::new(),
        migrated: None,
    };
    let volume = client.create(&request, &NoSecrets).await?;
    println!("{volume:?}");
    let again = client.create(&request, &NoSecrets).await?;
    if again.handle != volume.handle {
        return Err(format!("the same name gave {} and {}", volume.handle, again.handle).into());
    }
    if client.identity().capacity {
        println!("{:?}", client.capacity(&BTreeMap::new(), None).await?);
    }
    let backing = Backing {
        handle: volume.handle,
        secret: None,
    };
    client.delete(&backing, &NoSecrets).await?;
    client.delete(&backing, &NoSecrets).await?;
    println!("ok");
    Ok(())
}
