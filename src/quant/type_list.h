// The one list of weight types, behind every table of them: the enumeration, names and sizes, decoders, encoders, and
// the kernels of each instruction-set level. Read by code compiled for newer processors: nothing but the macro.
//
// To add a type: a row here, its struct with its size in blocks.h, a decode_block of the struct in one of the decode
// files. It is then correct everywhere. An encode_block makes it a type that can be written, a Packed<Block> in
// backend/cpu one that is fast.
#pragma once

// Calls row(enumerator, number in a GGUF file, name as people write it, block) for each type, in the order of numbers.
// clang-format off
#define QUARREL_WEIGHT_TYPES(row)                      \
  row(f32, 0, "F32", BlockF32)                         \
  row(f16, 1, "F16", BlockF16)                         \
  row(q4_0, 2, "Q4_0", BlockQ4_0)                      \
  row(q4_1, 3, "Q4_1", BlockQ4_1)                      \
  row(mxfp4_pairs, 4, "MXFP4_PAIRS", BlockMxfp4Pairs)  \
  row(q5_0, 6, "Q5_0", BlockQ5_0)                      \
  row(q5_1, 7, "Q5_1", BlockQ5_1)                      \
  row(q8_0, 8, "Q8_0", BlockQ8_0)                      \
  row(q2_k, 10, "Q2_K", BlockQ2K)                      \
  row(q3_k, 11, "Q3_K", BlockQ3K)                      \
  row(q4_k, 12, "Q4_K", BlockQ4K)                      \
  row(q5_k, 13, "Q5_K", BlockQ5K)                      \
  row(q6_k, 14, "Q6_K", BlockQ6K)                      \
  row(q8_k, 15, "Q8_K", BlockQ8K)                      \
  row(iq2_xxs, 16, "IQ2_XXS", BlockIq2Xxs)             \
  row(iq2_xs, 17, "IQ2_XS", BlockIq2Xs)                \
  row(iq3_xxs, 18, "IQ3_XXS", BlockIq3Xxs)             \
  row(iq1_s, 19, "IQ1_S", BlockIq1S)                   \
  row(iq4_nl, 20, "IQ4_NL", BlockIq4Nl)                \
  row(iq3_s, 21, "IQ3_S", BlockIq3S)                   \
  row(iq2_s, 22, "IQ2_S", BlockIq2S)                   \
  row(iq4_xs, 23, "IQ4_XS", BlockIq4Xs)                \
  row(iq1_m, 29, "IQ1_M", BlockIq1M)                   \
  row(bf16, 30, "BF16", BlockBf16)                     \
  row(tq1_0, 34, "TQ1_0", BlockTq1_0)                  \
  row(tq2_0, 35, "TQ2_0", BlockTq2_0)                  \
  row(mxfp4, 39, "MXFP4", BlockMxfp4)
// clang-format on
