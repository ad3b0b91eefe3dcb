//! A mixture of experts: of each token, the few that a router chooses, weighed and added up; for one row as for many.
//!
//! # The order of operations
//! A row is normalized, if there is a norm, and the router's products with it are its logits. `e[i] = exp(l[i] − max)`, their sum is
//! taken in 16 lanes by `i % 16`, which are added by halves, and `p[i] = e[i] / sum`. Chosen are the largest, the lowest
//! index where they are equal; if asked for, each is divided by the sum of those chosen, the largest first. The total of a
//! feature starts at 0 and takes in one chosen expert after the other, by index: `total = fma(y, p, total)`, where `y` is what the
//! gated MLP gives ([`gated`], then [`project`]); then the shared expert, if there is one, with `p = sigmoid` of its own router's
//! product. The result is `x + total`.
//!
//! Rows that choose the same expert are multiplied with it together, so that its weights are unpacked once; nothing of the result
//! depends on them, nor on threads or instructions.

mod route;

use crate::linear::{Activation, Output, gated, project};
use crate::rows::{Norm, Scratch as RowScratch, grow, normalize};
use crate::shared::SharedMut;
use crate::{Input, Isa, Team, Weights, reference};

pub(crate) use route::choose;
use route::{add_rows, add_totals, sigmoid_rows, softmax_row};

/// Rows that are taken at once: what bounds the memory.
const MOST_ROWS: usize = 1024;

/// Elements below which one thread moves rows before the others are called.
const SMALL: usize = 16384;

/// A gated MLP: `down(silu(gate(x)) · up(x))`.
#[derive(Debug, Clone, Copy)]
pub struct Expert<'a> {
    /// `[intermediate, features]`.
    pub gate: &'a Weights,
    /// `[intermediate, features]`.
    pub up: &'a Weights,
    /// `[features, intermediate]`.
    pub down: &'a Weights,
}

/// One layer's experts.
#[derive(Debug, Clone, Copy)]
pub struct Experts<'a> {
    /// `[experts, features]`.
    pub router: &'a Weights,
    /// All of them, of one shape.
    pub experts: &'a [Expert<'a>],
    /// How many of them a token gets.
    pub chosen: usize,
    /// Whether the weights of those chosen are made to sum up to 1.
    pub renormalize: bool,
    /// One that every token gets, and its router `[1, features]`.
    pub shared: Option<(Expert<'a>, &'a Weights)>,
}

/// Memory that the kernel uses while it runs, kept between runs.
#[derive(Debug, Default)]
pub struct Scratch {
    /// `[rows, features]`.
    normed: Vec<f32>,
    /// `[rows, experts]`: logits, then probabilities.
    weights: Vec<f32>,
    /// Those chosen by each row.
    choices: Vec<Choice>,
    /// The same by experts; of one, the lowest row first.
    by_expert: Vec<(usize, f32)>,
    /// Where an expert's begin in that; one more in the end.
    starts: Vec<usize>,
    /// Rows of one expert, `[rows, features]`.
    gathered: Vec<f32>,
    /// `[rows, intermediate]`.
    inner: Vec<f32>,
    /// `[rows, features]`.
    outer: Vec<f32>,
    /// `[rows, features]`.
    totals: Vec<f32>,
}

/// An expert that a row has chosen, and what it counts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Choice {
    pub expert: usize,
    pub weight: f32,
}

impl Expert<'_> {
    fn check(&self, features: usize) {
        for (matrix, outputs, inputs) in [
            (self.gate, self.up.outputs(), features),
            (self.up, self.gate.outputs(), features),
            (self.down, features, self.gate.outputs()),
        ] {
            assert_eq!(
                [matrix.outputs(), matrix.inputs()],
                [outputs, inputs],
                "shape of an expert's matrix"
            );
        }
    }
}

impl Experts<'_> {
    fn check(&self, features: usize) {
        let count = self.experts.len();
        assert!(
            (1..=count).contains(&self.chosen),
            "{} chosen of {count} experts",
            self.chosen
        );
        let shape = |weights: &Weights| [weights.outputs(), weights.inputs()];
        assert_eq!(shape(self.router), [count, features], "shape of the router");
        for expert in self.experts {
            expert.check(features);
        }
        if let Some((expert, router)) = &self.shared {
            expert.check(features);
            assert_eq!(
                shape(router),
                [1, features],
                "shape of the shared expert's router"
            );
        }
    }
}

/// Adds to each row of `x`, `[rows, features]`, what the experts make of it, normalized first if there is a norm.
///
/// # Panics
/// If a slice or a matrix has not the shape that the others ask for, or more experts are chosen than there are.
pub fn mixture(
    team: &Team,
    rows: &mut RowScratch,
    scratch: &mut Scratch,
    norm: Option<Norm<'_>>,
    experts: &Experts<'_>,
    x: &mut [f32],
) {
    let features = experts.router.inputs();
    experts.check(features);
    assert!(
        x.len().is_multiple_of(features),
        "rows of {features} in {}",
        x.len()
    );
    if let Some(norm) = norm {
        assert_eq!(norm.weight.len(), features, "the norm's weight");
    }
    if team.isa() == Isa::Portable {
        reference::experts::mixture(norm, experts, team.arithmetic(), x);
        return;
    }
    let call = Call {
        team,
        experts,
        features,
    };
    for x in x.chunks_mut(MOST_ROWS * features) {
        call.mix(rows, scratch, norm, x);
    }
}

struct Call<'a> {
    team: &'a Team,
    experts: &'a Experts<'a>,
    features: usize,
}

impl Call<'_> {
    fn mix(&self, rows: &mut RowScratch, scratch: &mut Scratch, norm: Option<Norm<'_>>, x: &mut [f32]) {
        let (team, experts, features) = (self.team, self.experts, self.features);
        let count = x.len() / features;
        let Scratch {
            normed,
            weights,
            choices,
            by_expert,
            starts,
            gathered,
            inner,
            outer,
            totals,
        } = scratch;
        let normed = part(normed, count * features);
        self.gather(|row| &x[row * features..][..features], norm, normed);
        let normed = &*normed;
        let weights = part(weights, count * experts.experts.len());
        let whole = Input::new(normed, features, None);
        project(team, rows, whole, &[experts.router], None, Output::Store(weights));
        self.choose(weights, choices);
        sort(choices, experts, by_expert, starts);
        let totals = part(totals, count * features);
        totals.fill(0.0);
        for (expert, bounds) in experts.experts.iter().zip(starts.windows(2)) {
            let chosen = &by_expert[bounds[0]..bounds[1]];
            if chosen.is_empty() {
                continue;
            }
            let gathered = part(gathered, chosen.len() * features);
            self.gather(
                |at| &normed[chosen[at].0 * features..][..features],
                None,
                gathered,
            );
            let outer = part(outer, gathered.len());
            self.run(rows, expert, gathered, inner, outer);
            self.add(outer, |at| chosen[at], totals);
        }
        if let Some((expert, router)) = &experts.shared {
            let outer = part(outer, normed.len());
            self.run(rows, expert, normed, inner, outer);
            let weights = part(gathered, count);
            project(team, rows, whole, &[router], None, Output::Store(weights));
            // SAFETY: the instructions are the team's.
            unsafe { sigmoid_rows(team.isa(), weights) };
            self.add(outer, |at| (at, weights[at]), totals);
        }
        // SAFETY: as above; all slices have as many elements.
        unsafe { add_totals(team.isa(), totals, x) };
    }

    /// An expert's output for some rows.
    fn run(
        &self,
        rows: &mut RowScratch,
        expert: &Expert<'_>,
        x: &[f32],
        inner: &mut Vec<f32>,
        to: &mut [f32],
    ) {
        let (team, intermediate) = (self.team, expert.gate.outputs());
        let input = Input::new(x, self.features, None);
        let inner = part(inner, x.len() / self.features * intermediate);
        let pair = [expert.gate, expert.up];
        gated(team, rows, input, pair, None, Activation::Silu, inner);
        let inner = Input::new(inner, intermediate, None);
        project(team, rows, inner, &[expert.down], None, Output::Store(to));
    }

    /// Copies rows, normalized if there is a norm.
    fn gather<'x>(&self, row: impl Fn(usize) -> &'x [f32] + Sync, norm: Option<Norm<'_>>, to: &mut [f32]) {
        let (features, isa) = (self.features, self.team.isa());
        let rows = to.len() / features;
        let shared = SharedMut::new(to);
        self.each_row(rows, |at| {
            // SAFETY: each row is taken once; the instructions are the team's.
            unsafe {
                let to = shared.slice(at * features..(at + 1) * features);
                match norm {
                    Some(norm) => normalize(isa, row(at), norm, to),
                    None => to.copy_from_slice(row(at)),
                }
            }
        });
    }

    /// Adds rows, weighed, to the totals of their tokens.
    fn add(&self, rows: &[f32], to: impl Fn(usize) -> (usize, f32) + Sync, totals: &mut [f32]) {
        let (features, isa) = (self.features, self.team.isa());
        let shared = SharedMut::new(totals);
        self.each_row(rows.len() / features, |at| {
            let (token, weight) = to(at);
            // SAFETY: a token is among an expert's rows once; the instructions are the team's.
            unsafe {
                let total = shared.slice(token * features..(token + 1) * features);
                add_rows(isa, &rows[at * features..][..features], weight, total);
            }
        });
    }

    /// Each row's experts, from the router's logits.
    fn choose(&self, logits: &mut [f32], choices: &mut Vec<Choice>) {
        let (experts, isa) = (self.experts, self.team.isa());
        let (count, chosen) = (experts.experts.len(), experts.chosen);
        let rows = logits.len() / count;
        choices.clear();
        choices.resize(rows * chosen, Choice::default());
        let (logits, choices) = (SharedMut::new(logits), SharedMut::new(choices));
        self.each_row(rows, |row| {
            // SAFETY: each row is taken once; the instructions are the team's.
            unsafe {
                let weights = logits.slice(row * count..(row + 1) * count);
                softmax_row(isa, weights);
                let choices = choices.slice(row * chosen..(row + 1) * chosen);
                choose(weights, experts.renormalize, choices);
            }
        });
    }

    /// Has each row done, by all members if there is much to do.
    fn each_row(&self, rows: usize, work: impl Fn(usize) + Sync) {
        if rows * self.features <= SMALL {
            (0..rows).for_each(work);
            return;
        }
        self.team.run(|worker| {
            loop {
                let run = worker.claim_run(0, rows);
                if run.is_empty() {
                    break;
                }
                run.for_each(&work);
            }
        });
    }
}

/// Choices by experts: `starts` says where each one's begin.
fn sort(
    choices: &[Choice],
    experts: &Experts<'_>,
    by_expert: &mut Vec<(usize, f32)>,
    starts: &mut Vec<usize>,
) {
    let count = experts.experts.len();
    starts.clear();
    starts.resize(count + 1, 0);
    for choice in choices {
        starts[choice.expert] += 1;
    }
    let mut end = 0;
    for start in &mut *starts {
        end += *start;
        *start = end;
    }
    by_expert.clear();
    by_expert.resize(choices.len(), (0, 0.0));
    // From the last to the first, each expert's are filled from its end.
    for (at, choice) in choices.iter().enumerate().rev() {
        starts[choice.expert] -= 1;
        by_expert[starts[choice.expert]] = (at / experts.chosen, choice.weight);
    }
}

/// The first `len` floats of a buffer that grows as needed.
fn part(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    grow(buffer, len);
    &mut buffer[..len]
}
