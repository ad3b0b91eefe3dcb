//! A mixture of experts: `x + Σ p · expert(norm(x))` over the few experts that a router chooses for each token, and one that
//! all share.

use mlx_rs::error::Exception;
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::ops::{argpartition_axis, argsort, gather_mm, sigmoid, softmax_axis};
use mlx_rs::{Array, Dtype};

use super::kernels::KernelExperts;
use super::{Linear, Quantized, RmsNorm, extent, features};

/// Choices from which on it pays to bring those of one expert together.
const SORTED_FROM: i32 = 64;

/// Experts with the normalization before them and the residual around them.
#[derive(Debug)]
pub struct Moe(Way);

#[derive(Debug)]
enum Way {
    Ops(Box<MoeOps>),
    Kernels(KernelExperts),
}

/// The layer by MLX's operations.
#[derive(Debug)]
pub struct MoeOps {
    /// Before it.
    pub norm: RmsNorm,
    /// `[in, experts]`.
    pub router: Linear,
    /// `intermediate` outputs of each expert.
    pub gate: ExpertLinear,
    /// `intermediate` outputs of each expert.
    pub up: ExpertLinear,
    /// From `intermediate` inputs.
    pub down: ExpertLinear,
    /// How many experts there are.
    pub experts: usize,
    /// How many of them a token gets.
    pub chosen: usize,
    /// Whether the weights of those chosen are made to sum up to 1.
    pub renormalize: bool,
    /// One that every token gets.
    pub shared: Option<SharedOps>,
}

/// The expert that every token gets, by MLX's operations.
#[derive(Debug)]
pub struct SharedOps {
    /// `[in, 2 · intermediate]`, the gate first.
    pub gate_up: Linear,
    /// `[intermediate, in]`.
    pub down: Linear,
    /// Features inside.
    pub intermediate: usize,
    /// `[in, 1]`: by whose sigmoid it counts.
    pub router: Linear,
}

/// One linear map of each expert.
#[derive(Debug)]
pub struct ExpertLinear(Weight);

#[derive(Debug)]
enum Weight {
    /// `[experts, in, out]`.
    Dense(Array),
    /// `[experts, out, in]`.
    Quantized(Quantized),
}

impl ExpertLinear {
    /// Dense maps of a weight `[experts, in, out]` (contiguous or a view).
    pub fn dense(weight: Array) -> Self {
        Self(Weight::Dense(weight))
    }

    /// Maps of a quantized stack `[experts, out, in]`: see [`Quantized::stacked`].
    pub fn quantized(weight: Quantized) -> Self {
        Self(Weight::Quantized(weight))
    }

    /// Its arrays, for evaluation.
    pub fn arrays(&self) -> Vec<&Array> {
        match &self.0 {
            Weight::Dense(weight) => vec![weight],
            Weight::Quantized(weight) => weight.arrays(),
        }
    }

    /// `[…, 1, in]` by the experts `[…]`, to `[…, 1, out]`.
    fn forward(&self, x: &Array, experts: &Array, sorted: bool) -> Result<Array, Exception> {
        match &self.0 {
            Weight::Dense(weight) => gather_mm(x, weight, None, experts, sorted),
            Weight::Quantized(weight) => weight.products(x, experts, sorted),
        }
    }
}

impl Moe {
    /// By MLX's operations.
    pub fn ops(ops: MoeOps) -> Self {
        Self(Way::Ops(Box::new(ops)))
    }

    /// By kernels.
    pub fn kernels(kernels: KernelExperts) -> Self {
        Self(Way::Kernels(kernels))
    }

    /// `[tokens, features]` to the same.
    pub fn forward(&self, x: &Array) -> Result<Array, Exception> {
        match &self.0 {
            Way::Ops(ops) => ops.forward(x),
            Way::Kernels(kernels) => kernels.forward(x),
        }
    }
}

impl MoeOps {
    fn forward(&self, x: &Array) -> Result<Array, Exception> {
        let normed = self.norm.forward(x)?;
        let (experts, weights) = self.route(&normed)?;
        let each = self.each(&normed, &experts)?;
        let weights = weights.as_dtype(x.dtype())?.expand_dims(-1)?;
        let mut y = each.multiply(weights)?.sum_axis(1, false)?;
        if let Some(shared) = &self.shared {
            y = y.add(shared.forward(&normed)?)?;
        }
        x.add(y)
    }

    /// The experts of each token and what they count, `[tokens, chosen]` each.
    fn route(&self, x: &Array) -> Result<(Array, Array), Exception> {
        let logits = self.router.forward(x)?.as_dtype(Dtype::Float32)?;
        let probabilities = softmax_axis(&logits, -1, true)?;
        let others = extent(self.experts) - extent(self.chosen);
        let experts = argpartition_axis(&probabilities, others, -1)?.try_index((.., others..))?;
        let mut weights = probabilities.take_along_axis(&experts, -1)?;
        if self.renormalize {
            weights = weights.divide(weights.sum_axis(-1, true)?)?;
        }
        Ok((experts, weights))
    }

    /// What each token's experts `[tokens, chosen]` put out: `[tokens, chosen, features]`.
    fn each(&self, x: &Array, experts: &Array) -> Result<Array, Exception> {
        let &[tokens, chosen] = experts.shape() else {
            return Err(Exception::custom(format!(
                "expected [tokens, chosen], found {:?}",
                experts.shape()
            )));
        };
        let shape = [tokens, chosen, -1];
        if tokens * chosen < SORTED_FROM {
            let x = x.expand_dims_axes(&[1, 2])?;
            return self.mlp(&x, experts, false)?.reshape(&shape);
        }
        let experts = experts.reshape(&[-1])?;
        let order = argsort(&experts)?;
        let sources = order.floor_divide(Array::from_slice(&[chosen.unsigned_abs()], &[1]))?;
        let x = x.take_axis(&sources, 0)?.expand_dims(1)?;
        let y = self.mlp(&x, &experts.take(&order)?, true)?;
        y.take_axis(argsort(&order)?, 0)?.reshape(&shape)
    }

    fn mlp(&self, x: &Array, experts: &Array, sorted: bool) -> Result<Array, Exception> {
        let gate = self.gate.forward(x, experts, sorted)?;
        let up = self.up.forward(x, experts, sorted)?;
        let inner = gate.multiply(sigmoid(&gate)?)?.multiply(up)?;
        self.down.forward(&inner, experts, sorted)
    }
}

impl SharedOps {
    fn forward(&self, x: &Array) -> Result<Array, Exception> {
        let both = self.gate_up.forward(x)?;
        let gate = features(&both, 0, self.intermediate)?;
        let up = features(&both, self.intermediate, 2 * self.intermediate)?;
        let inner = gate.multiply(sigmoid(&gate)?)?.multiply(up)?;
        let counts = sigmoid(self.router.forward(x)?)?;
        self.down.forward(&inner)?.multiply(counts)
    }
}
