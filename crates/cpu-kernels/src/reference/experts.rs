//! The definition of a mixture of experts in plain loops.

use crate::experts::{Choice, Expert, Experts, choose};
use crate::linear::{Activation, Finish};
use crate::reference::{exp, largest, normalize, project, sigmoid, sum16};
use crate::rows::Norm;
use crate::simd::SUM_LANES;
use crate::{Arithmetic, Input, Weights};

/// Row by row. The arguments have been checked.
pub(crate) fn mixture(norm: Option<Norm<'_>>, experts: &Experts<'_>, arithmetic: Arithmetic, to: &mut [f32]) {
    for to in to.chunks_mut(experts.router.inputs()) {
        let x = match norm {
            Some(norm) => normalize(to, norm),
            None => to.to_vec(),
        };
        let probabilities = softmax(&product(&x, experts.router, arithmetic));
        let mut choices = vec![Choice::default(); experts.chosen];
        choose(&probabilities, experts.renormalize, &mut choices);
        choices.sort_by_key(|choice| choice.expert);
        let mut totals = vec![0.0f32; x.len()];
        for choice in choices {
            add(
                &mut totals,
                &run(&experts.experts[choice.expert], &x, arithmetic),
                choice.weight,
            );
        }
        if let Some((expert, router)) = &experts.shared {
            let weight = sigmoid(product(&x, router, arithmetic)[0]);
            add(&mut totals, &run(expert, &x, arithmetic), weight);
        }
        for (to, total) in to.iter_mut().zip(totals) {
            *to += total;
        }
    }
}

fn softmax(logits: &[f32]) -> Vec<f32> {
    let most = largest(logits);
    let exps: Vec<f32> = logits.iter().map(|l| exp(l - most)).collect();
    let mut lanes = [0.0f32; SUM_LANES];
    for (i, e) in exps.iter().enumerate() {
        lanes[i % SUM_LANES] += e;
    }
    let sum = sum16(&lanes);
    exps.iter().map(|e| e / sum).collect()
}

fn add(totals: &mut [f32], y: &[f32], weight: f32) {
    for (total, y) in totals.iter_mut().zip(y) {
        *total = y.mul_add(weight, *total);
    }
}

fn product(x: &[f32], weights: &Weights, arithmetic: Arithmetic) -> Vec<f32> {
    let mut to = vec![0.0; weights.outputs()];
    let finish = Finish::Add {
        bias: None,
        adds: false,
    };
    project(
        Input::new(x, x.len(), None),
        &[weights],
        0,
        weights.outputs(),
        arithmetic,
        finish,
        &mut to,
    );
    to
}

fn run(expert: &Expert<'_>, x: &[f32], arithmetic: Arithmetic) -> Vec<f32> {
    let outputs = expert.gate.outputs();
    let mut inner = vec![0.0; outputs];
    let finish = Finish::Gate {
        bias: None,
        activation: Activation::Silu,
    };
    let pair = [expert.gate, expert.up];
    project(
        Input::new(x, x.len(), None),
        &pair,
        0,
        outputs,
        arithmetic,
        finish,
        &mut inner,
    );
    product(&inner, expert.down, arithmetic)
}
