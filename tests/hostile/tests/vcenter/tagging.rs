//! The tagging API: sessions, names of tags and categories, attached objects; in both of its forms.

use std::collections::BTreeMap;
use std::convert::Infallible;

use bytes::Bytes;
use hostile::{Input, Memory, Target, alone, attack};
use http::{Request, Response};
use http_body_util::Full;
use tower::service_fn;
use vsphere::tagging::{TagNames, Tagging};
use vsphere::transport::Transport;

use crate::conversation::{config, in_virtual_time};

const CATEGORY: &str = "urn:vmomi:InventoryServiceCategory:5f1b:GLOBAL";
const TAG: &str = "urn:vmomi:InventoryServiceTag:81c6:GLOBAL";

/// Responses by path. The server has one of the two forms.
fn responses(is_rest: bool) -> BTreeMap<String, String> {
    let (root, id, action) =
        if is_rest { ("/rest/com/vmware/cis", "id:", "~action") } else { ("/api/cis", "", "action") };
    let session = if is_rest { format!("{root}/session") } else { "/api/session".to_owned() };
    let list = format!("{root}/tagging/tag-association/{id}{TAG}?{action}=list-attached-objects");
    let values = [
        (session, r#""b00db39f948d13ea1e59b4d6fce56389""#.to_owned()),
        (format!("{root}/tagging/category"), format!(r#"["{CATEGORY}"]"#)),
        (
            format!("{root}/tagging/category/{id}{CATEGORY}"),
            format!(
                r#"{{"id":"{CATEGORY}","name":"role","description":"","cardinality":"MULTIPLE","associable_types":[],"used_by":[]}}"#
            ),
        ),
        (format!("{root}/tagging/tag"), format!(r#"["{TAG}"]"#)),
        (
            format!("{root}/tagging/tag/{id}{TAG}"),
            format!(r#"{{"id":"{TAG}","name":"node","category_id":"{CATEGORY}","description":"","used_by":[]}}"#),
        ),
        (list, r#"[{"id":"vm-42","type":"VirtualMachine"},{"id":"group-v3","type":"Folder"}]"#.to_owned()),
    ];
    let wrapped = |value| if is_rest { format!(r#"{{"value":{value}}}"#) } else { value };
    values.into_iter().map(|(path, value)| (path, wrapped(value))).collect()
}

#[test]
fn number_10_no_response_of_the_tagging_api_is_dangerous() {
    let (alone, runtime) = (alone(), in_virtual_time());
    let forms = [true, false].map(responses);
    let of_sample: Vec<(usize, &String)> =
        forms.iter().enumerate().flat_map(|(form, paths)| paths.keys().map(move |path| (form, path))).collect();
    let samples: Vec<Vec<u8>> = of_sample.iter().map(|(form, path)| forms[*form][*path].clone().into_bytes()).collect();
    let words =
        ["{\"value\":", "[\"\"],", "\"name\":\"node\",", "\"category_id\":\"\"", "\"type\":\"VirtualMachine\"", TAG];
    let memory = Memory { fixed_bytes: 256 << 10, bytes_per_byte: 16 };
    let target = Target { name: "tagging", samples: &samples, words: &words, memory };
    attack(&alone, &target, |Input { bytes, sample }| {
        let (form, mutated) = of_sample[sample];
        let (responses, mutated, bytes) = (forms[form].clone(), mutated.clone(), Bytes::copy_from_slice(bytes));
        let service = service_fn(move |request: Request<Full<Bytes>>| {
            let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
            let body = match responses.get(&path) {
                Some(_) if path == mutated => Some(bytes.clone()),
                found => found.map(|text| Bytes::from(text.clone())),
            };
            let status = if body.is_some() { 200 } else { 404 };
            let mut response = Response::new(Full::new(body.unwrap_or_default()));
            *response.status_mut() = status.try_into().expect("a status");
            std::future::ready(Ok::<_, Infallible>(response))
        });
        runtime.block_on(async {
            let mut tagging = Tagging::new(&config(Transport::service(service))).expect("a client");
            let mut names = TagNames::default();
            let wanted = ["node".to_owned(), "role:node".to_owned()];
            let first = tagging.objects_with(&wanted, &mut names).await;
            // Known names are read again.
            let again = tagging.objects_with(&wanted, &mut names).await;
            tagging.close().await;
            first.is_ok() && again.is_ok()
        })
    });
}
