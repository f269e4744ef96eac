/* -DRANDSVM_FLOAT computes in float.
 * -DTEST adds a main that reads rows from standard input, as words index:value, and prints for
 * each the decision values, the number of the class, and the probabilities.
 */
#include <float.h>
#include <math.h>
#include <stddef.h>

#ifdef RANDSVM_FLOAT
typedef float randsvm_real;
#define REAL(name) name##f
#else
typedef double randsvm_real;
#define REAL(name) name
#endif

#define ENTRY 0
#define RBF 1
#define POWER 2
#define TANH 3
#define COS 4
#define SIGNS 5

#include "model.h"

#if NEEDS_DOUBLE && defined RANDSVM_FLOAT
#error "the features of this model need double"
#endif

/* The type of a predicted label. */
#if RANDSVM_CLASSES == 0
typedef randsvm_real randsvm_output;
#elif INTEGER_LABELS
typedef int randsvm_output;
#else
typedef const char *randsvm_output;
#endif

void randsvm_decisions(const randsvm_real *x, randsvm_real *f);
randsvm_output randsvm_predict(const randsvm_real *x);
#if RANDSVM_DECISIONS == 1
randsvm_real randsvm_decision(const randsvm_real *x);
#endif
#if RANDSVM_CLASSES > 0
int randsvm_class(const randsvm_real *x);
const char *randsvm_label(int number);
#endif
#if HAS_FEATURE_NAMES
const char *randsvm_feature(int number);
#endif
#if PROBABILITIES
randsvm_output randsvm_predict_probability(const randsvm_real *x, randsvm_real *p);
#endif
#ifdef NOISE_SCALE
randsvm_real randsvm_noise_scale(void);
#endif

/* ---- rows ---- */

#if SINGLE
#define ROUNDED(value) ((float)(value))
#else
#define ROUNDED(value) (value)
#endif

/* Rounds and scales a row: v becomes (x - shift) factor, or that divided by its norm. */
static void prepare(const randsvm_real *x, randsvm_real *v)
{
#if UNIT
    randsvm_real norm = 0, largest = 0;
    int exponent;
#endif
    int i;
    for (i = 0; i < RANDSVM_FEATURES; i++)
        v[i] = ROUNDED(x[i]);
#if SCALED
    for (i = 0; i < RANDSVM_FEATURES; i++)
        v[i] = (v[i] - shift[i]) * factor[i];
#if UNIT
    for (i = 0; i < RANDSVM_FEATURES; i++)
        if (largest < REAL(fabs)(v[i]))
            largest = REAL(fabs)(v[i]);
    /* Squares of small or large values would leave the range; a power of two rounds nothing. */
    REAL(frexp)(largest, &exponent);
    for (i = 0; i < RANDSVM_FEATURES; i++) {
        v[i] = REAL(ldexp)(v[i], -exponent);
        norm += v[i] * v[i];
    }
    norm = norm > 0 ? REAL(sqrt)(norm) : 1;
    for (i = 0; i < RANDSVM_FEATURES; i++)
        v[i] /= norm;
#endif
    for (i = 0; i < RANDSVM_FEATURES; i++) {
        v[i] = v[i] > FLT_MAX ? FLT_MAX : v[i] < -FLT_MAX ? -FLT_MAX : v[i];
        v[i] = ROUNDED(v[i]);
    }
#endif
}

/* ---- f = b + sum_j c_j phi_j(v) ---- */

#if SPARSE
#define FIRST(j) ((size_t)start[j])
#define LAST(j) ((size_t)start[(j) + 1])
#define PLACE(k, j) position[k]
#else
#define FIRST(j) ((size_t)(j) * RANDSVM_FEATURES)
#define LAST(j) (FIRST(j) + RANDSVM_FEATURES)
#define PLACE(k, j) ((k) - FIRST(j))
#endif

#if PHI == ENTRY
static randsvm_real phi(const randsvm_real *v, randsvm_real norm, int j)
{
    (void)norm;
    return v[j];
}
#elif PHI == RBF
/* exp(-gamma |v - z_j|^2). norm: |v|^2, which counts where z_j stores no entry */
static randsvm_real phi(const randsvm_real *v, randsvm_real norm, int j)
{
    randsvm_real sum = SPARSE ? norm : 0;
    size_t k;
    for (k = FIRST(j); k < LAST(j); k++) {
        randsvm_real entry = v[PLACE(k, j)], difference = entry - entries[k];
        sum += difference * difference - (SPARSE ? entry * entry : 0);
    }
    return REAL(exp)(-(randsvm_real)GAMMA * (sum > 0 ? sum : 0));
}
#elif PHI == SIGNS
/* The product of <v, s> over the rows s of signs of term j. */
static randsvm_real phi(const randsvm_real *v, randsvm_real norm, int j)
{
    randsvm_real product = 1;
    int s, i;
    for (s = start[j]; s < start[j + 1]; s++) {
        const signed char *row = signs + (size_t)s * RANDSVM_FEATURES;
        randsvm_real sum = 0;
        for (i = 0; i < RANDSVM_FEATURES; i++)
            sum += v[i] * row[i];
        product *= sum;
    }
    (void)norm;
    return product;
}
#else
/* The power, tanh or cos of gamma <v, z_j> + offset. */
static randsvm_real phi(const randsvm_real *v, randsvm_real norm, int j)
{
    randsvm_real sum = 0;
    size_t k;
    for (k = FIRST(j); k < LAST(j); k++)
        sum += v[PLACE(k, j)] * entries[k];
    (void)norm;
    sum = (randsvm_real)GAMMA * sum + (randsvm_real)OFFSET(j);
#if PHI == POWER
    {
        randsvm_real power = 1;
        int degree;
        for (degree = DEGREE; degree > 0; degree /= 2) {
            if (degree % 2)
                power *= sum;
            sum *= sum;
        }
        return power;
    }
#elif PHI == TANH
    return REAL(tanh)(sum);
#else
    return REAL(cos)(sum);
#endif
}
#endif

void randsvm_decisions(const randsvm_real *x, randsvm_real *f)
{
    randsvm_real v[RANDSVM_FEATURES], norm = 0;
    int c, g, i, j;
    prepare(x, v);
    for (i = 0; i < RANDSVM_FEATURES; i++)
        norm += v[i] * v[i];
    for (c = 0; c < RANDSVM_DECISIONS; c++)
        f[c] = offsets[c];
    /* The coefficients of group g belong to the decision values columns[g]. */
    for (g = 0; g < GROUPS; g++)
        for (j = groups[g]; j < groups[g + 1]; j++) {
            randsvm_real value = phi(v, norm, j);
            for (c = 0; c < WIDTH; c++)
                f[columns[g * WIDTH + c]] += coefficients[(size_t)j * WIDTH + (size_t)c] * value;
        }
}

#if RANDSVM_DECISIONS == 1
randsvm_real randsvm_decision(const randsvm_real *x)
{
    randsvm_real f[1];
    randsvm_decisions(x, f);
    return f[0];
}
#endif

/* ---- labels ---- */

#if RANDSVM_CLASSES == 0
randsvm_output randsvm_predict(const randsvm_real *x)
{
    return randsvm_decision(x);
}
#else
static int class_of(const randsvm_real *f)
{
#if RANDSVM_DECISIONS == 1
    return f[0] > 0 ? 0 : 1;
#else
    int best = 0, i;
#if PAIRS
    int votes[RANDSVM_CLASSES] = {0}, j;
    for (i = 0; i < RANDSVM_CLASSES; i++)
        for (j = i + 1; j < RANDSVM_CLASSES; j++)
            votes[*f++ > 0 ? i : j]++;
#else
    const randsvm_real *votes = f;
#endif
    for (i = 1; i < RANDSVM_CLASSES; i++)
        if (votes[i] > votes[best])
            best = i;
    return best;
#endif
}

/* Number of the class of a row, from 0. */
int randsvm_class(const randsvm_real *x)
{
    randsvm_real f[RANDSVM_DECISIONS];
    randsvm_decisions(x, f);
    return class_of(f);
}

/* Label of a class as the training data spelled it. */
const char *randsvm_label(int number)
{
    return labels[number];
}

#if INTEGER_LABELS
#define OUTPUT(number) label_values[number]
#else
#define OUTPUT(number) labels[number]
#endif

randsvm_output randsvm_predict(const randsvm_real *x)
{
    return OUTPUT(randsvm_class(x));
}
#endif

#if HAS_FEATURE_NAMES
const char *randsvm_feature(int number)
{
    return feature_names[number];
}
#endif

/* ---- probabilities ---- */

#ifdef NOISE_SCALE
/* Scale sigma of the noise z = y - f: density e^(-|z| / sigma) / (2 sigma). */
randsvm_real randsvm_noise_scale(void)
{
    return (randsvm_real)NOISE_SCALE;
}
#endif

#if PROBABILITIES && MARKS
/* The probability that a row is like the training rows, by the bin of its decision value. */
static int probabilities_of(const randsvm_real *f, randsvm_real *p)
{
    int i = 0;
    while (i < MARKS && marks[i] <= f[0])
        i++;
    p[0] = (randsvm_real)i / MARKS;
    if (f[0] < marks[0])
        p[0] = (randsvm_real)0.001;
    else if (f[0] > marks[MARKS - 1])
        p[0] = (randsvm_real)0.999;
    else if (i == MARKS)
        p[0] = 0;
    p[1] = 1 - p[0];
    return class_of(f);
}
#elif PROBABILITIES
static randsvm_real sigmoid(const randsvm_real *f, int c)
{
    randsvm_real least = (randsvm_real)MIN_PROBABILITY, half = (randsvm_real)0.5, p;
    p = half - half * REAL(tanh)(half * (sigmoid_a[c] * f[c] + sigmoid_b[c]));
    return p < least ? least : p > 1 - least ? 1 - least : p;
}

#if PAIRS
/* Wu, Lin, Weng, "Probability Estimates for Multi-class Classification by Pairwise Coupling",
 * JMLR 5, 2004, Algorithm 2. */
static void class_probabilities(const randsvm_real *f, randsvm_real *p)
{
    randsvm_real Q[RANDSVM_CLASSES][RANDSVM_CLASSES], Qp[RANDSVM_CLASSES];
    int i, j, t, step, pair = 0;
    for (t = 0; t < RANDSVM_CLASSES; t++) {
        p[t] = (randsvm_real)1 / RANDSVM_CLASSES;
        Q[t][t] = 0;
    }
    for (i = 0; i < RANDSVM_CLASSES; i++)
        for (j = i + 1; j < RANDSVM_CLASSES; j++) {
            randsvm_real r = sigmoid(f, pair++);
            Q[i][j] = Q[j][i] = -r * (1 - r);
            Q[i][i] += (1 - r) * (1 - r);
            Q[j][j] += r * r;
        }
    for (step = 0; step < COUPLING_STEPS; step++) {
        randsvm_real pQp = 0, largest = 0;
        for (t = 0; t < RANDSVM_CLASSES; t++) {
            Qp[t] = 0;
            for (j = 0; j < RANDSVM_CLASSES; j++)
                Qp[t] += Q[t][j] * p[j];
            pQp += p[t] * Qp[t];
        }
        for (t = 0; t < RANDSVM_CLASSES; t++) {
            randsvm_real error = REAL(fabs)(Qp[t] - pQp);
            largest = error > largest ? error : largest;
        }
        if (largest < (randsvm_real)COUPLING_TOLERANCE)
            break;
        for (t = 0; t < RANDSVM_CLASSES; t++) {
            randsvm_real change = (pQp - Qp[t]) / Q[t][t], sum = 1 + change;
            p[t] += change;
            pQp = (pQp + change * (change * Q[t][t] + 2 * Qp[t])) / (sum * sum);
            for (j = 0; j < RANDSVM_CLASSES; j++) {
                Qp[j] = (Qp[j] + change * Q[t][j]) / sum;
                p[j] /= sum;
            }
        }
    }
}
#elif RANDSVM_DECISIONS == 1
static void class_probabilities(const randsvm_real *f, randsvm_real *p)
{
    p[0] = sigmoid(f, 0);
    p[1] = 1 - p[0];
}
#else
static void class_probabilities(const randsvm_real *f, randsvm_real *p)
{
    randsvm_real sum = 0;
    int i;
    for (i = 0; i < RANDSVM_CLASSES; i++)
        sum += p[i] = sigmoid(f, i);
    for (i = 0; i < RANDSVM_CLASSES; i++)
        p[i] /= sum;
}
#endif

/* Computes the probability of each class, and returns the number of the most probable one. */
static int probabilities_of(const randsvm_real *f, randsvm_real *p)
{
    int best = 0, i;
    class_probabilities(f, p);
    for (i = 1; i < RANDSVM_CLASSES; i++)
        if (p[i] > p[best])
            best = i;
    return best;
}
#endif

#if PROBABILITIES
/* Computes the probability of each class, and returns the label of the most probable class; for
 * novelty detection the label by the decision value. */
randsvm_output randsvm_predict_probability(const randsvm_real *x, randsvm_real *p)
{
    randsvm_real f[RANDSVM_DECISIONS];
    randsvm_decisions(x, f);
    return OUTPUT(probabilities_of(f, p));
}
#endif

/* ---- a program that predicts rows of svmlight ---- */

#ifdef TEST
#include <stdio.h>

/* Reads a row; returns 0 at the end of the input. Words without index:value, as labels, and
 * indices beyond the model's are skipped. */
static int read_row(randsvm_real *x)
{
    int next, index, i;
    for (i = 0; i < RANDSVM_FEATURES; i++)
        x[i] = 0;
    for (;;) {
        char word[64];
        double value;
        do
            next = getchar();
        while (next == ' ' || next == '\t' || next == '\r');
        if (next == EOF || next == '\n')
            return next != EOF;
        ungetc(next, stdin);
        if (scanf("%63s", word) != 1)
            return 0;
        if (sscanf(word, "%d:%lf", &index, &value) == 2 && index >= FIRST_INDEX
            && index < RANDSVM_FEATURES + FIRST_INDEX)
            x[index - FIRST_INDEX] = (randsvm_real)value;
    }
}

int main(void)
{
    static randsvm_real x[RANDSVM_FEATURES], f[RANDSVM_DECISIONS];
    int c;
    while (read_row(x)) {
        randsvm_decisions(x, f);
        for (c = 0; c < RANDSVM_DECISIONS; c++)
            printf("%.17g ", (double)f[c]);
#if RANDSVM_CLASSES > 0
        printf("%d ", class_of(f));
#endif
#if PROBABILITIES
        {
            static randsvm_real p[RANDSVM_CLASSES];
            probabilities_of(f, p);
            for (c = 0; c < RANDSVM_CLASSES; c++)
                printf("%.17g ", (double)p[c]);
        }
#endif
        printf("\n");
    }
    return fflush(stdout) != 0;
}
#endif
