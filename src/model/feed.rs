//! What one forward feeds, and to whom.

use mlx_rs::ops::concatenate;
use mlx_rs::{Array, Dtype};

use super::ModelError;
use super::error::Doing;
use crate::cache::{BatchCache, LayerCache, Layers, RowCache};

/// Tokens that go through one forward together, as one sequence: those of the steps, then those of the pieces. Where
/// positions meet, each step's and each piece's meet their own caches alone.
#[derive(Debug, Default)]
pub struct Feed<'a> {
    /// One token to each row of a batch; logits follow from them.
    pub steps: Vec<Step<'a>>,
    /// Parts of prompts; no logits follow from them.
    pub pieces: Vec<Piece<'a>>,
}

/// The next token of each row of a batch.
#[derive(Debug)]
pub struct Step<'a> {
    /// `[B]` uint32, possibly still unread.
    pub tokens: &'a Array,
    /// The rows.
    pub batch: &'a mut BatchCache,
}

/// The next tokens of one row.
#[derive(Debug)]
pub struct Piece<'a> {
    /// They follow what the row holds; at least one.
    pub tokens: &'a [u32],
    /// The row.
    pub row: &'a mut RowCache,
}

impl<'a> Feed<'a> {
    /// One step by itself.
    pub fn step(tokens: &'a Array, batch: &'a mut BatchCache) -> Self {
        Self {
            steps: vec![Step { tokens, batch }],
            pieces: Vec::new(),
        }
    }

    /// One piece by itself.
    pub fn piece(tokens: &'a [u32], row: &'a mut RowCache) -> Self {
        Self {
            steps: Vec::new(),
            pieces: vec![Piece { tokens, row }],
        }
    }

    /// Checks that it fits its caches and a vocabulary of so many tokens, and puts all tokens in one sequence, `[ΣL]`.
    pub(super) fn tokens(&self, vocabulary: usize) -> Result<Array, ModelError> {
        let mut ids = Vec::new();
        for piece in &self.pieces {
            piece.check(vocabulary)?;
            ids.extend_from_slice(piece.tokens);
        }
        for step in &self.steps {
            step.check()?;
        }
        let ids = Array::from_slice(&ids, &[i32::try_from(ids.len()).unwrap_or(i32::MAX)]);
        let mut parts: Vec<&Array> = self.steps.iter().map(|step| step.tokens).collect();
        if !self.pieces.is_empty() {
            parts.push(&ids);
        }
        match parts.as_slice() {
            [] => Err(ModelError::Misuse("a forward of no tokens".to_owned())),
            [whole] => Ok((*whole).clone()),
            parts => concatenate(parts, 0).doing("put tokens in one sequence"),
        }
    }

    /// The cache of the only row, if nothing but its next token is fed.
    pub(super) fn lone_step(&mut self) -> Option<&mut BatchCache> {
        match self.steps.as_mut_slice() {
            [step] if self.pieces.is_empty() && step.batch.rows() == 1 => Some(step.batch),
            _ => None,
        }
    }

    /// One layer of all that is fed: of the steps, then of the pieces.
    pub(super) fn layer(&mut self, layer: usize) -> Vec<LayerCache<'_>> {
        let steps = self.steps.iter_mut().map(|step| step.batch.layer(layer));
        let pieces = self.pieces.iter_mut().map(|piece| piece.row.layer(layer));
        steps.chain(pieces).collect()
    }

    /// Tells all caches that they are written once `output` is evaluated: see [`Layers::wrote`].
    pub fn wrote(&mut self, output: &Array) -> Result<(), ModelError> {
        for step in &mut self.steps {
            step.batch.wrote(output)?;
        }
        for piece in &mut self.pieces {
            piece.row.wrote(output)?;
        }
        Ok(())
    }
}

impl Step<'_> {
    /// Checks that the tokens are `[B]` uint32, one for each row of the batch.
    fn check(&self) -> Result<(), ModelError> {
        let (shape, rows) = (self.tokens.shape(), self.batch.rows());
        if self.tokens.dtype() != Dtype::Uint32
            || shape.len() != 1
            || shape.first() != i32::try_from(rows).ok().as_ref()
        {
            let found = self.tokens.dtype();
            return Err(ModelError::Misuse(format!(
                "a step of {rows} rows was given tokens of shape {shape:?} and type {found:?}, \
                 expected [{rows}] uint32"
            )));
        }
        Ok(())
    }
}

impl Piece<'_> {
    /// The first position that it is fed to.
    pub(super) fn start(&self) -> Result<usize, ModelError> {
        self.row.len().ok_or_else(|| {
            ModelError::Misuse("the row was left half-written by a forward that failed: drop it".to_owned())
        })
    }

    fn check(&self, vocabulary: usize) -> Result<(), ModelError> {
        self.start()?;
        if self.tokens.is_empty() {
            return Err(ModelError::Misuse("a piece of no tokens".to_owned()));
        }
        // MLX would read past the table.
        if let Some(token) = self.tokens.iter().find(|&&token| token as usize >= vocabulary) {
            return Err(ModelError::Misuse(format!(
                "there is no token {token}: the vocabulary has {vocabulary}"
            )));
        }
        Ok(())
    }
}
