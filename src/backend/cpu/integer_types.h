// The weight types whose products take int8 activations, and the blocks they are made of: the one list behind every
// level's table of kernels, so that a type that has one kernel has them all. Read by code compiled for newer
// processors: no templates, nothing but the macro.
#pragma once

// Calls row(Block, type) for each of them.
#define QUARREL_INTEGER_TYPES(row)                                                                                    \
  row(BlockQ4_0, q4_0) row(BlockQ4_1, q4_1) row(BlockQ5_0, q5_0) row(BlockQ5_1, q5_1) row(BlockQ8_0, q8_0)            \
      row(BlockQ2K, q2_k) row(BlockQ3K, q3_k) row(BlockQ4K, q4_k) row(BlockQ5K, q5_k) row(BlockQ6K, q6_k)             \
          row(BlockQ8K, q8_k) row(BlockTq1_0, tq1_0) row(BlockTq2_0, tq2_0) row(BlockMxfp4, mxfp4)                    \
              row(BlockIq1S, iq1_s) row(BlockMxfp4Pairs, mxfp4_pairs) row(BlockIq1M, iq1_m) row(BlockIq2Xxs, iq2_xxs) \
                  row(BlockIq2Xs, iq2_xs) row(BlockIq2S, iq2_s) row(BlockIq3Xxs, iq3_xxs) row(BlockIq3S, iq3_s)       \
                      row(BlockIq4Nl, iq4_nl) row(BlockIq4Xs, iq4_xs)
