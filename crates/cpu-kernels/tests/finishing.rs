//! Gates and residuals: each row has the bits of the definition, on every instruction set and number of threads.

mod support;

use cpu_kernels::{Isa, Norm, Team, add_normalized, multiply_by_sigmoid};
use support::{Noise, bits, teams};

#[test]
fn normalized_rows_are_added_with_the_bits_of_the_definition() {
    let portable = Team::with_isa(1, Isa::Portable).unwrap();
    // Rows shorter than a vector, ragged ones, and enough of them that threads share.
    for (rows, features) in [(1, 1), (3, 17), (2, 96), (90, 200), (5, 4099)] {
        let mut noise = Noise(rows as u32);
        let [x, residual] = [(); 2].map(|()| noise.floats(rows * features));
        let weight = noise.floats(features);
        let norm = Norm {
            weight: &weight,
            eps: 1e-6,
        };
        let mut expected = residual.clone();
        add_normalized(&portable, &x, norm, &mut expected);
        for team in teams() {
            let mut found = residual.clone();
            add_normalized(&team, &x, norm, &mut found);
            assert_eq!(
                bits(&found),
                bits(&expected),
                "{}: {rows} × {features}",
                team.isa()
            );
        }
    }
}

#[test]
fn a_normalized_row_is_added_to_its_residual() {
    let team = Team::new(1).unwrap();
    let mut to = [100.0, 200.0];
    let norm = Norm {
        weight: &[2.0, 10.0],
        eps: 0.0,
    };
    // The mean of the squares is 25.
    add_normalized(&team, &[1.0, 7.0], norm, &mut to);
    assert!(
        (to[0] - 100.4).abs() < 1e-4 && (to[1] - 214.0).abs() < 1e-4,
        "{to:?}"
    );
}

#[test]
fn gates_have_the_bits_of_the_definition() {
    let portable = Team::with_isa(1, Isa::Portable).unwrap();
    for len in [0, 1, 15, 16, 33, 4096, 20_001] {
        let mut noise = Noise(len as u32);
        let gates: Vec<f32> = noise.floats(len).iter().map(|gate| gate * 100.0).collect();
        let values = noise.floats(len);
        let mut expected = values.clone();
        multiply_by_sigmoid(&portable, &gates, &mut expected);
        for (gate, (value, found)) in gates.iter().zip(values.iter().zip(&expected)) {
            let exact = f64::from(*value) / (1.0 + (-f64::from(*gate)).exp());
            assert!(
                (f64::from(*found) - exact).abs() < 1e-6,
                "{value} by {gate} is {found}"
            );
        }
        for team in teams() {
            let mut found = values.clone();
            multiply_by_sigmoid(&team, &gates, &mut found);
            assert_eq!(bits(&found), bits(&expected), "{}: {len}", team.isa());
        }
    }
}
