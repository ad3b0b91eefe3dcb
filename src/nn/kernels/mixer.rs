//! The half of a block in which tokens see others, as one node.

use std::sync::Arc;

use mlx_rs::{Array, Dtype};

use super::team::{Kernels, Workspace};
use super::{InPlaceNode, RoomMut, TensorView, input, output, rooms};
use crate::cache::LayerCache;
use crate::nn::{NnError, Packed, extent};

/// What a token mixer computes: what is added to tokens comes of these, and of what their rows' rooms hold.
pub(super) trait Mixer: Send + Sync + 'static {
    fn kernels(&self) -> &Kernels;

    /// Features of a token.
    fn features(&self) -> usize;

    /// Tokens that are taken at once, which bounds the memory.
    fn most_tokens(&self) -> usize;

    /// Takes tokens, of which the first is the `first` of all, into the rooms; leaves what they get in the workspace.
    fn mix(
        &self,
        x: &[f32],
        first: usize,
        inputs: &[TensorView<'_>],
        rooms: &mut [RoomMut<'_>],
        workspace: &mut Workspace,
    );

    /// Adds what they got to the first of the tokens that were just taken, which are as they were.
    fn finish(&self, x: &mut [f32], workspace: &mut Workspace);
}

/// A mixer as a node, of three kinds.
#[derive(Debug)]
pub(super) struct MixerNodes {
    /// Gives all tokens.
    all: InPlaceNode,
    /// Gives those of the first rows.
    some: InPlaceNode,
    /// Gives nothing, but writes to the rooms.
    none: InPlaceNode,
}

impl MixerNodes {
    /// Nodes of this name.
    pub(super) fn new(name: &str, mixer: impl Mixer) -> Self {
        let all = Arc::new(mixer);
        let (some, none) = (Arc::clone(&all), Arc::clone(&all));
        Self {
            all: InPlaceNode::new(name, move |inputs, rooms, outputs| {
                let workspace = &mut *all.kernels().workspace();
                let x = output(&mut outputs[0]).chunks_mut(elements(&*all));
                for (x, first) in x.zip((0..).step_by(all.most_tokens())) {
                    all.mix(x, first, inputs, rooms, workspace);
                    all.finish(x, workspace);
                }
            }),
            some: InPlaceNode::new(name, move |inputs, rooms, outputs| {
                let mut y = output(&mut outputs[0]).chunks_mut(elements(&*some));
                mix_all(&*some, inputs, rooms, |x, workspace| {
                    if let Some(y) = y.next() {
                        y.copy_from_slice(&x[..y.len()]);
                        some.finish(y, workspace);
                    }
                });
            }),
            none: InPlaceNode::new(name, move |inputs, rooms, outputs| {
                mix_all(&*none, inputs, rooms, |_, _| ());
                output::<f32>(&mut outputs[0]).fill(0.0);
            }),
        }
    }

    /// `x`, `[tokens, features]`, of the first `put_out` spans, with what the mixer adds; something of one element if there are none.
    pub(super) fn forward(
        &self,
        x: &Array,
        inputs: &[&Array],
        caches: Vec<LayerCache<'_>>,
        packed: &Packed,
        put_out: usize,
    ) -> Result<Array, NnError> {
        let rooms = rooms(caches, packed)?;
        if put_out == packed.spans.len() {
            return Ok(self.all.update(x, inputs, &rooms)?);
        }
        let features = x.shape().get(1).copied().unwrap_or(1);
        let (node, shape) = match put_out {
            0 => (&self.none, [1, 1]),
            _ => (&self.some, [extent(packed.tokens(put_out)), features]),
        };
        let inputs: Vec<&Array> = std::iter::once(x).chain(inputs.iter().copied()).collect();
        let [y] = node.apply(&inputs, &rooms, [(&shape, Dtype::Float32)])?;
        Ok(y)
    }
}

/// Elements of the tokens that are taken at once.
fn elements(mixer: &impl Mixer) -> usize {
    mixer.most_tokens().saturating_mul(mixer.features())
}

/// Takes all tokens, the first of the inputs, into the rooms; gives each part of them to `after`.
fn mix_all(
    mixer: &impl Mixer,
    inputs: &[TensorView<'_>],
    rooms: &mut [RoomMut<'_>],
    mut after: impl FnMut(&[f32], &mut Workspace),
) {
    let (x, inputs) = inputs.split_first().expect("tokens come first");
    let workspace = &mut *mixer.kernels().workspace();
    let parts = input::<f32>(x).chunks(elements(mixer));
    for (x, first) in parts.zip((0..).step_by(mixer.most_tokens())) {
        mixer.mix(x, first, inputs, rooms, workspace);
        after(x, workspace);
    }
}
