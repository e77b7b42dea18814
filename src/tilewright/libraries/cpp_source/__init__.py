"""Reading C++ sources far enough to know which types a kernel is made of.

`preprocess` gives the tokens that a compiler would see (conditions judged with the build's own macros, macros kept
aside), `declare` the declarations in them, and `types` evaluates alias chains such as

    using CollectiveMainloop = typename CollectiveBuilder<Arch, TensorOp, ...>::CollectiveOp;

down to the names that CUTLASS itself defines: `std::conditional_t`, `is_same_v`, constants, template parameters and
the specialisations of small adapter structs. It is no compiler: what it does not understand is an error with a line
(`NotRead`), never a guess.

The lexer here keeps preprocessor lines, line splices and `##`, which that of `tilewright.collectives` drops by design.
"""

from __future__ import annotations
