//! Formulas as a line of text: `\frac{a}{2} \leq x^2` as `a/2 ≤ x²`. What isn't known here is left as it was written, whole:
//! half a formula is worse than its source.

mod mask;
mod symbols;

pub use mask::{Formula, Masked, Part, mask};

/// How deep groups may lie within each other.
const DEPTH: usize = 24;

/// What is read of a formula.
struct Reader<'a> {
    rest: &'a str,
    out: String,
    depth: usize,
    /// Whether a command or a script was read: text that only looks like a formula has none.
    set: bool,
}

/// A formula with its marks as lines of text; none where it isn't closed, has something unknown, or has nothing that only a formula
/// has and is no lone letter.
pub fn readable(formula: &str) -> Option<Vec<String>> {
    let formula = formula.trim();
    let marks = [("$$", "$$"), (r"\[", r"\]"), (r"\(", r"\)"), ("$", "$")];
    let inside = marks.iter().find_map(|(open, close)| {
        let inside = formula.strip_prefix(open)?.strip_suffix(close)?;
        Some(inside)
    })?;
    let mut reader = Reader {
        rest: inside,
        out: String::new(),
        depth: 0,
        set: false,
    };
    reader.read()?;
    let mut letters = inside.trim().chars();
    let lone = letters.next().is_some_and(char::is_alphabetic) && letters.next().is_none();
    if !reader.set && !lone {
        return None;
    }
    let lines = reader.out.split('\n').map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.join(" ")
    });
    let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
    (!lines.is_empty()).then_some(lines)
}

impl<'a> Reader<'a> {
    /// Reads to the end.
    fn read(&mut self) -> Option<()> {
        while !self.rest.is_empty() {
            self.step()?;
        }
        Some(())
    }

    /// Reads the next thing.
    fn step(&mut self) -> Option<()> {
        let c = self.next()?;
        match c {
            '\\' => self.command(),
            '{' => {
                let inside = self.until_closed()?;
                let text = self.inner(inside)?;
                self.out.push_str(&text);
                Some(())
            }
            '}' | '$' | '#' => None,
            '^' => self.script(symbols::superscript, '^'),
            '_' => self.script(symbols::subscript, '_'),
            '&' | '~' | '\n' | '\r' | '\t' | ' ' => {
                self.out.push(' ');
                Some(())
            }
            '\'' => {
                self.set = true;
                self.out.push('′');
                Some(())
            }
            '%' => None,
            c => {
                self.out.push(c);
                Some(())
            }
        }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    /// What stands up to the brace that closes the one that was read.
    fn until_closed(&mut self) -> Option<&'a str> {
        let text = self.rest;
        let (mut depth, mut escaped) = (1, false);
        for (at, c) in text.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.rest = &text[at + 1..];
                return Some(&text[..at]);
            }
        }
        None
    }

    /// A group by itself.
    fn inner(&mut self, text: &str) -> Option<String> {
        let mut reader = Reader {
            rest: text,
            out: String::new(),
            depth: self.depth + 1,
            set: false,
        };
        if reader.depth > DEPTH {
            return None;
        }
        reader.read()?;
        self.set |= reader.set;
        let words: Vec<&str> = reader.out.split(' ').filter(|word| !word.is_empty()).collect();
        Some(words.join(" "))
    }

    /// A command's name: letters, or one other character.
    fn name(&mut self) -> Option<&'a str> {
        let text = self.rest;
        let letters = text.len() - text.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let len = match letters {
            0 => text.chars().next()?.len_utf8(),
            letters => letters,
        };
        self.rest = &text[len..];
        Some(&text[..len])
    }

    /// What a command takes, as text: a group, a command, or one character.
    fn argument(&mut self) -> Option<String> {
        self.rest = self.rest.trim_start();
        match self.next()? {
            '{' => {
                let inside = self.until_closed()?;
                self.inner(inside)
            }
            '\\' => {
                let before = self.rest;
                let name = self.name()?;
                // Only what takes nothing itself.
                symbols::symbol(name)?;
                let command = &before[..name.len()];
                self.inner(&format!("\\{command}"))
            }
            c => self.inner(&c.to_string()),
        }
    }

    /// The letters that a command takes as they stand.
    fn words(&mut self) -> Option<&'a str> {
        self.rest = self.rest.trim_start();
        self.rest = self.rest.strip_prefix('{')?;
        let words = self.until_closed()?;
        (!words.contains(['\\', '{', '$'])).then_some(words)
    }

    fn command(&mut self) -> Option<()> {
        let name = self.name()?;
        self.set = true;
        match name {
            "frac" | "dfrac" | "tfrac" | "cfrac" => {
                let (above, below) = (self.argument()?, self.argument()?);
                if above.is_empty() || below.is_empty() {
                    return None;
                }
                let below = if is_word(&below) {
                    format!("({below})")
                } else {
                    bracketed(&below)
                };
                let text = format!("{}/{below}", bracketed(&above));
                self.push_apart(&text);
            }
            "sqrt" => {
                let index = self.rest.trim_start().strip_prefix('[').and_then(|rest| {
                    let (index, after) = rest.split_once(']')?;
                    self.rest = after;
                    index
                        .chars()
                        .map(symbols::superscript)
                        .collect::<Option<String>>()
                });
                let text = format!("{}√{}", index.unwrap_or_default(), bracketed(&self.argument()?));
                if self.has_script() || self.goes_on() {
                    self.out.push_str(&format!("({text})"));
                } else {
                    self.out.push_str(&text);
                }
            }
            "binom" | "dbinom" | "tbinom" => {
                let text = format!("({} choose {})", self.argument()?, self.argument()?);
                self.out.push_str(&text);
            }
            "text" | "textrm" | "textbf" | "textit" | "mbox" | "operatorname" => {
                let words = self.words()?;
                self.out.push_str(words);
            }
            "mathrm" | "mathbf" | "mathit" | "mathsf" | "mathcal" | "boldsymbol" | "bm" | "boxed" => {
                let text = self.argument()?;
                self.out.push_str(&text);
            }
            "mathbb" => {
                let letters = self.words()?;
                self.out.extend(letters.chars().map(symbols::double_struck));
            }
            "pmod" => {
                let text = format!(" (mod {})", self.argument()?);
                self.out.push_str(&text);
            }
            "hat" | "bar" | "vec" | "tilde" | "dot" | "ddot" | "overline" | "widehat" => {
                let text = self.argument()?;
                let mut letters = text.chars();
                let (Some(letter), None) = (letters.next(), letters.next()) else {
                    return None;
                };
                self.out.extend([letter, symbols::accent(name)?]);
            }
            "left" | "right" | "big" | "Big" | "bigl" | "bigr" | "Bigl" | "Bigr" | "bigg" | "Bigg" => {
                self.rest = self.rest.trim_start();
                // A dot stands for no bracket.
                if let Some(rest) = self.rest.strip_prefix('.') {
                    self.rest = rest;
                }
            }
            "limits" | "nolimits" | "displaystyle" | "textstyle" | "scriptstyle" | "nonumber" | "!" => {}
            "begin" | "end" => {
                let of = self.words()?;
                let of = of.trim_end_matches('*');
                if !matches!(
                    of,
                    "aligned" | "align" | "gathered" | "gather" | "equation" | "split"
                ) {
                    return None;
                }
            }
            "\\" => {
                // A distance may stand behind it.
                if let Some((_, after)) = self.rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                    self.rest = after;
                }
                if self.depth > 0 {
                    return None;
                }
                self.out.push('\n');
            }
            name => {
                let symbol = symbols::symbol(name)?;
                if symbols::is_spaced(name) {
                    self.out.push(' ');
                    self.out.push_str(symbol);
                    self.out.push(' ');
                } else {
                    // A word doesn't run into the one before.
                    let word = symbol.starts_with(char::is_alphabetic) && symbol.is_ascii();
                    if word && self.out.ends_with(char::is_alphanumeric) {
                        self.out.push(' ');
                    }
                    self.out.push_str(symbol);
                    let more = self.rest.starts_with(|c: char| c.is_alphanumeric() || c == '\\');
                    if word && more {
                        self.out.push(' ');
                    }
                }
            }
        }
        Some(())
    }

    /// Adds a quotient, in brackets where what stands beside it would be taken for a part of it.
    fn push_apart(&mut self, text: &str) {
        let before = self.out.ends_with(|c: char| {
            c.is_alphanumeric() || symbols::is_script(c) || matches!(c, ')' | ']' | '/' | '√')
        });
        if before || self.goes_on() || self.has_script() {
            self.out.push_str(&format!("({text})"));
        } else {
            self.out.push_str(text);
        }
    }

    /// Whether what comes next would be taken for a part of what was read.
    fn goes_on(&self) -> bool {
        let ends = [
            "\\right", "\\\\", "\\,", "\\;", "\\:", "\\quad", "\\)", "\\]", "\\end",
        ];
        let touches = |c: char| c.is_alphanumeric() || matches!(c, '(' | '[' | '{' | '/' | '\\' | '!');
        self.rest.starts_with(touches) && !ends.iter().any(|end| self.rest.starts_with(end))
    }

    /// Whether what was read has something higher or lower behind it.
    fn has_script(&self) -> bool {
        self.rest.starts_with(['^', '_', '\''])
    }

    /// What stands higher or lower: by small characters where there are such for all of it.
    fn script(&mut self, small: impl Fn(char) -> Option<char>, mark: char) -> Option<()> {
        self.set = true;
        let text = self.argument()?;
        let tight: String = text.chars().filter(|c| *c != ' ').collect();
        let degrees = mark == '^' && tight == "∘";
        let primes = mark == '^' && !tight.is_empty() && tight.chars().all(|c| matches!(c, '′' | '*'));
        if degrees {
            self.out.push('°');
        } else if primes {
            self.out.push_str(&tight);
        } else if let Some(small) = tight.chars().map(small).collect::<Option<String>>() {
            self.out.push_str(&small);
        } else {
            self.out.push(mark);
            self.out.push_str(&bracketed(&text));
        }
        Some(())
    }
}

/// Whether letters are a word rather than a product.
fn is_word(text: &str) -> bool {
    text.chars().count() > 2 && text.chars().all(char::is_alphabetic)
}

/// A part that stands as one: with brackets, unless it is a number, a letter, a word or has some.
fn bracketed(text: &str) -> String {
    let plain = text
        .chars()
        .filter(|c| !symbols::is_script(*c) && !matches!(c, '′' | '√'));
    let one = plain.clone().count() == 1 && plain.clone().all(|c| c.is_alphanumeric() || c == '∞');
    let number = text.chars().all(|c| c.is_numeric() || c == '.');
    let word = is_word(text);
    let whole = text.starts_with('(') && text.find(')') == Some(text.len() - 1);
    if one || number || word || whole {
        text.to_owned()
    } else {
        format!("({text})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(formula: &str) -> String {
        readable(formula).map_or_else(|| "as it was".to_owned(), |lines| lines.join(" / "))
    }

    #[test]
    fn what_models_write_is_a_line_of_text() {
        for (formula, text) in [
            (r"$a_1 + b_{12}$", "a₁ + b₁₂"),
            (r"$x^2 + y^{n+1}$", "x² + yⁿ⁺¹"),
            (r"\(\frac{a}{2} \leq \sqrt{x^2}\)", "a/2 ≤ √x²"),
            (r"$\frac{a+b}{\pi r^2}$", "(a+b)/(π r²)"),
            (
                r"$$x = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}$$",
                "x = (-b ± √(b² - 4ac))/(2a)",
            ),
            (
                r"\[ \sum_{i=1}^{n} i = \frac{n(n+1)}{2} \]",
                "∑ᵢ₌₁ⁿ i = (n(n+1))/2",
            ),
            (r"$\int_0^\infty e^{-x} \, dx$", "∫₀^∞ e⁻ˣ dx"),
            (r"$\lim_{x \to 0} \sin x$", "lim_(x → 0) sin x"),
            (r"$f: \mathbb{R} \to \mathbb{C}$", "f: ℝ → ℂ"),
            (r"$\left( \frac{1}{2} \right)$", "( 1/2 )"),
            (r"$90^\circ$", "90°"),
            (r"$\text{speed} = 5\,\text{m/s}$", "speed = 5 m/s"),
            (r"$f'(x)$", "f′(x)"),
            (r"$\alpha\beta \in \Omega$", "αβ ∈ Ω"),
            (r"$\binom{n}{k}$", "(n choose k)"),
            (r"$\sqrt[3]{8}$", "³√8"),
            (r"$\hat{y}$", "y\u{302}"),
            (r"$x$", "x"),
            (r"$3\frac{1}{2}$", "3(1/2)"),
            (r"$\frac{1}{2}\frac{3}{4}$", "(1/2)(3/4)"),
            (r"$\frac{a}{b}^2$", "(a/b)²"),
            (r"$\frac{1}{2}mv^2$", "(1/2)mv²"),
            (r"$\frac{1}{2} m v^2$", "1/2 m v²"),
            (r"$\frac{1}{abc}$", "1/(abc)"),
            (r"$\left(\frac{1}{2}\right)$", "(1/2)"),
            (r"$\sqrt{x}^2$", "(√x)²"),
            (r"$\sqrt{4}5$", "(√4)5"),
            (r"$a/\frac{b}{c}$", "a/(b/c)"),
            (r"$\frac{\sqrt{\pi}}{2}$", "√π/2"),
            (r"$a \bmod n$", "a mod n"),
            (r"$100\%$", "100%"),
            (
                "$$\n\\begin{aligned}\na &= b \\\\\n  &= c\n\\end{aligned}\n$$",
                "a = b / = c",
            ),
        ] {
            assert_eq!(read(formula), text, "{formula}");
        }
    }

    #[test]
    fn what_is_not_known_is_left_whole() {
        for formula in [
            r"$\unknown{x}$",
            r"$\begin{pmatrix} a & b \\ c & d \end{pmatrix}$",
            r"$\frac{a}$",
            r"$a}$",
            r"$\frac{}{2}$",
            "$HOME/bin:$",
            "$USER/$",
            "$$ and $$",
            "$5 for a and 6$",
            r"\(a*\)",
            r"$$a",
            r"\[",
            r"$\hat{xyz}$",
            r"$$$$",
            r"$\",
        ] {
            assert_eq!(read(formula), "as it was", "{formula}");
        }
        let deep = format!("${}x{}$", "{".repeat(1000), "}".repeat(1000));
        assert_eq!(read(&deep), "as it was");
    }
}
