//! `--threads`.

use serde_json::{Value, json};

use super::model::{ids_only, joining};
use super::program::Program;

#[test]
fn no_threads_at_all_is_a_usage_error() {
    let program = Program::new();
    for command in [&["run", "hi"][..], &["replay", "x"], &["bench"], &[]] {
        for count in ["0", "-1", "many", "1025", "4294967297"] {
            let flag = format!("--threads={count}");
            program
                .run(&[command, &[&flag]].concat())
                .fails(2, &["--threads"]);
        }
    }
}

#[test]
fn threads_are_not_for_a_gpu() {
    // A build without a GPU refuses the device, one with a GPU the threads.
    Program::new()
        .run(&["bench", "-m", &ids_only(), "--device", "gpu", "--threads", "2"])
        .fails(2, &["--device"]);
}

/// All that a replay says but times and the device.
fn said(threads: &str) -> (Vec<Value>, String) {
    let mut lines = joining();
    for (line, seed) in lines.iter_mut().zip(0..) {
        line["logprobs"] = json!(1);
        if seed % 2 == 1 {
            line["sampling"] = json!({"temperature": 1.0, "seed": seed});
        }
    }
    let flags = ["--device", "cpu", "--threads", threads, "--prefill-chunk", "16"];
    let mut replayed = Program::new().replay(&ids_only(), &lines, &flags).0;
    let summary = replayed.pop().unwrap();
    for event in &mut replayed {
        event
            .as_object_mut()
            .unwrap()
            .retain(|name, _| !name.ends_with("_ms"));
    }
    (replayed, summary["device"].as_str().unwrap().to_owned())
}

#[test]
fn answers_dont_depend_on_the_number_of_threads() {
    let (one, device) = said("1");
    assert!(
        device.starts_with("cpu (") && device.ends_with(", 1 thread)"),
        "{device}"
    );
    for threads in ["2", "3"] {
        let (more, device) = said(threads);
        assert_eq!(more, one, "{threads} threads");
        assert!(device.ends_with(&format!(", {threads} threads)")), "{device}");
    }
}
