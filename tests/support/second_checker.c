/* second_checker DATA... MODEL: verify the certificate of a kernel machine of svc, from docs/certificate-format.md alone.
 * Kernels linear, polynomial and rbf. Not read: compressed files, transcripts, labels that JSON escapes. Exit codes as there.
 * Sums are in long double with unit roundoff MU, and have bounds of their errors. For little-endian machines; needs -lm. */
#define _GNU_SOURCE
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef long double R;
static R MU = LDBL_EPSILON / 2, gam, coef0;
typedef struct { char *p; size_t n, cap; } Buf;
typedef struct { int ix; R v; double d; } Feature; /* v is from the decimal number, d its float64 number */
typedef struct { Feature *f; int n, label, group, y; R weight, c, beta, *coef; } Row; /* a row of the data, or a vector */
static int n, nv, classes, degree;
static unsigned char hash[32];
static char undecided[200], kind, *labels[1024], *meta; /* kind of kernel: l, p or r; meta: header and trailer */
static Row *x, *z; /* the rows and the vectors */
static Buf arrays[6]; /* of the digest; the last one is what the digest is of */
#define end(code, ...) (printf((code) == 0 ? "verified: " : (code) == 1 ? "refuted: " : (code) == 3 ? "undecided: " : "error: "), \
                        printf(__VA_ARGS__), putchar('\n'), exit(code))
static void *more(void *p, size_t size) { return (p = realloc(p, size)) ? p : (end(3, "out of memory"), p); }
static void add(Buf *b, const void *p, size_t size) {
    if (b->n + size >= b->cap) b->p = more(b->p, b->cap = 2 * (b->n + size) + 64);
    memcpy(b->p + b->n, p, size), b->p[b->n += size] = 0;
}
static char *slurp(const char *path) {
    Buf b = {0};
    char part[65536];
    FILE *f = fopen(path, "rb");
    if (!f) end(66, "%s cannot be opened", path);
    for (size_t k; (k = fread(part, 1, sizeof part, f)) > 0;) add(&b, part, k);
    return fclose(f) || !b.n || strlen(b.p) != b.n ? (end(65, "%s: no text", path), NULL) : b.p;
}
#define TURN(v, b, c, d, last) (((v) >> b | (v) << (32 - b)) ^ ((v) >> c | (v) << (32 - c)) ^ ((v) >> d | (last ? 0 : (v) << (32 - d))))
static int sha256(Buf b, const char *expected) { /* sets hash; whether it is the expected one */
    char hex[65], bits[8];
    uint32_t h[8], k[64], w[64], s[8], a, e;
    for (int i = 0; i < 8; i++) bits[i] = (char)((uint64_t)b.n * 8 >> (56 - 8 * i));
    for (int p = 2, q, c = 0; c < 64; p++) { /* the constants are the fractions of roots of the first primes */
        for (q = 2; p % q; q++);
        if (q == p && c < 8) h[c] = (uint32_t)(fmodl(sqrtl(p), 1) * 0x1p32L);
        if (q == p) k[c++] = (uint32_t)(fmodl(cbrtl(p), 1) * 0x1p32L);
    }
    for (b.cap = 0, b.p = memcpy(more(NULL, b.n + 1), b.p, b.n), add(&b, "\x80", 1); b.n % 64 != 56;) add(&b, "", 1);
    for (unsigned char *m = (add(&b, bits, 8), (unsigned char *)b.p); m < (unsigned char *)b.p + b.n;) {
        memcpy(s, h, sizeof s);
        for (int i = 0; i < 64; i++, m += i <= 16 ? 4 : 0) {
            if (i < 16) w[i] = (uint32_t)m[0] << 24 | m[1] << 16 | m[2] << 8 | m[3];
            else w[i] = w[i-16] + w[i-7] + TURN(w[i-15], 7, 18, 3, 1) + TURN(w[i-2], 17, 19, 10, 1);
            a = s[7] + TURN(s[4], 6, 11, 25, 0) + ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
            e = TURN(s[0], 2, 13, 22, 0) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
            memmove(s + 1, s, 7 * sizeof *s), s[4] += a, s[0] = a + e;
        }
        for (int i = 0; i < 8; i++) h[i] += s[i];
    }
    for (int i = 0; i < 32; i++) sprintf(hex + 2 * i, "%02x", hash[i] = (unsigned char)(h[i / 4] >> (24 - 8 * (i % 4))));
    return free(b.p), expected && !strncmp(hex, expected, 64);
}
static char *cut(char **s, const char *ends) { /* the next word of a text, or NULL */
    char *w = *s + strspn(*s, ends), *e = w + strcspn(w, ends);
    return *s = e + (*e != 0), *e = 0, *w ? w : NULL;
}
#define word(s) cut(s, " \t\r")
static int decimal(const char *s, char *e) { return s && isfinite(strtod(s, &e)) && *s && !*e && !s[strspn(s, "+-.0123456789eE")]; }
static R number(const char *s) {
    if (!decimal(s, NULL)) end(65, "'%s' is no number", s ? s : "");
    return fabs(strtod(s, NULL)) < DBL_MIN ? strtod(s, NULL) : strtold(s, NULL);
}
static void feature(Row *r, int ix, R v, double d) {
    if (!(r->n & (r->n + 1))) r->f = more(r->f, (2 * r->n + 2) * sizeof *r->f);
    r->f[r->n++] = (Feature){ix, v, d};
}
static void pair(Row *r, char *w, int base) {
    char *e; long ix = strtol(w, &e, 10);
    if (*w < '0' || *w > '9' || *e != ':' || ix < base || ix > INT32_MAX || (r->n && ix <= r->f[r->n - 1].ix))
        end(65, "'%.40s': expected ascending index:value", w);
    feature(r, (int)ix, number(e + 1), strtod(e + 1, NULL));
}
static int same(const Row *a, const Row *b, double tol) { /* the same nonzero float64 numbers */
    for (int i = 0, j = 0;; i++, j++) {
        while (i < a->n && a->f[i].d == 0) i++;
        while (j < b->n && b->f[j].d == 0) j++;
        if (i == a->n || j == b->n) return i == a->n && j == b->n;
        if (a->f[i].ix != b->f[j].ix || fabs(a->f[i].d - b->f[j].d) > tol * fabs(a->f[i].d)) return 0;
    }
}
static int same_label(const char *a, const char *b) {
    R p = decimal(a, NULL) ? strtold(a, NULL) : NAN, q = decimal(b, NULL) ? strtold(b, NULL) : NAN;
    return !strcmp(a, b) || (p == q && p == floorl(p)) || (!strcasecmp(a, b) && (!strcasecmp(a, "true") || !strcasecmp(a, "false")));
}
static R power(R v, int d) { return d > 0 ? v * power(v, d - 1) : 1; }
static R K(const Row *a, const Row *b, char kernel) { /* d: |a - b|^2 */
    R s = 0;
    for (int i = 0, j = 0; i < a->n || j < b->n;) {
        int64_t p = i < a->n ? a->f[i].ix : INT64_MAX, q = j < b->n ? b->f[j].ix : INT64_MAX;
        R v = p <= q ? a->f[i++].v : 0, w = q <= p ? b->f[j++].v : 0;
        s += kernel == 'r' || kernel == 'd' ? (v - w) * (v - w) : v * w;
    }
    return kernel < 'm' ? s : kernel == 'r' ? expl(-gam * s) : power(gam * s + coef0, degree);
}
static R u_of(const Row *r, int rows, const Row *a) { /* sum_j beta_j K(r_j, a) */
    R s = 0;
    while (rows--) s += r[rows].beta != 0 ? r[rows].beta * K(r + rows, a, kind) : 0;
    return s;
}
#define norm(r) sqrtl(K(r, r, 'l'))
static char *find(char *text, const char *key) { /* the text after a key, or NULL */
    char *p = strstr(text, key);
    return p ? p + strlen(key) + strspn(p + strlen(key), ": ") : NULL;
}
#define HEAD(key) find(meta, "\n" key " ")
#define LINE(key) HEAD("# randsvm " key)
#define NUMBER(text) numbers(text, &(R){0}, NULL, 1)
static R numbers(char *s, R *out, double *rounded, int count) { /* the next numbers of a text, null is NAN; and the last */
    for (char t[64] = ""; count-- > 0; s += strlen(t)) {
        if (!s) end(65, "no model: a line is missing");
        strncpy(t, s += strspn(s, "[, "), 63), t[strcspn(t, ", ]}\n")] = 0;
        *out++ = strcmp(t, "null") ? number(t) : NAN;
        if (rounded) *rounded++ = strtod(t, NULL);
    }
    return out[-1];
}
static void claim(const char *what, R v, R below, R above) { /* v >= 0; v is between v - below and v + above */
    if (v + above < 0) end(1, "%s, by %.3Lg", what, -v);
    if (!(v - below >= 0) && !*undecided) snprintf(undecided, 200, "%s: %.3Lg +- %.3Lg; more digits decide", what, v, below);
}
static void read_data(char *p, int base) {
    char *l, *w, *cost;
    for (p += memcmp(p, "\xef\xbb\xbf", 3) ? 0 : 3; (l = cut(&p, "\n"));) {
        Row r = {.y = 0};
        l[strcspn(l, "#")] = 0, cost = "1";
        if (!(w = word(&l))) continue;
        while (r.label < classes && !same_label(w, labels[r.label])) r.label++;
        for (char *c = w; *c; c++) if (r.label > 999 || *c < 33 || *c > 126 || strchr("\"\\[],", *c)) end(3, "label '%s' is not read", w);
        if (r.label == classes)
            add(arrays + 5, classes ? "\", \"" : "[\"", classes ? 4 : 2), add(arrays + 5, w, strlen(w)), labels[classes++] = w;
        while ((w = word(&l)))
            if (!r.n && !strncmp(w, "cost:", 5)) cost = w + 5;
            else if (r.n || strncmp(w, "qid:", 4)) pair(&r, w, base);
        if ((r.weight = number(cost)) < 0) end(65, "a weight is below 0"); else if (r.weight == 0) continue;
        add(arrays, &(double){r.label}, 8), add(arrays + 1, &(double){strtod(cost, NULL)}, 8), add(arrays + 2, &(int64_t){r.n}, 8);
        for (int i = 0; i < r.n; i++) add(arrays + 3, &r.f[i].ix, 4), add(arrays + 4, &r.f[i].d, 8);
        if (!(n & (n + 1))) x = more(x, (2 * n + 2) * sizeof *x);
        x[n++] = r;
    }
}
int main(int argc, char **argv) {
    int i, j, k, m, p = 0, q = 1, nf = 0, seen = 0, place[1024], ix[65536]; /* place: of a class among the machines */
    char *s, *l, *text = argc > 2 ? slurp(argv[argc - 1]) : (end(2, "DATA... MODEL"), ""), *tail = strstr(text, "\n# randsvm ");
    if (!tail || strncmp(tail, "\n# randsvm format 2\n", 20) || strlen(tail) < 120) end(65, "no model of format 2");
    if (!sha256((Buf){text, strlen(text) - 82, 0}, strrchr(text, ' ') + 1)) end(1, "claim 5, the seal is wrong");
    char *rows = strstr(text, "\nSV\n"), *problem, *certificate, *scale, *kernel;
    meta = strdup(text), tail[1] = 0, problem = LINE("problem"), certificate = LINE("certificate"), scale = LINE("scale");
    if (!rows || !problem || !certificate || strncmp(problem, "{\"task\": \"svc\",", 15) || LINE("map") || LINE("dual_of")
        || (strncmp(certificate, "\"proven", 7) && strncmp(certificate, "\"sampled", 8)) || !(kernel = HEAD("kernel_type"))
        || !strchr("lpr", kind = *kernel) || kernel[1] == 'r')
        end(3, "checked are linear, polynomial and rbf machines of svc that have the coefficients of D");
    problem = strndup(problem, strcspn(problem, "\n"));
    R v, C = NUMBER(find(problem, "\"C\"")), all = 0, S = 0, radius = 0, d = 0, D = 0, eD = 0, G = 0, eG = 0, lost = 0, cost = 0, ec = 0;
    for (i = 1; i < argc - 1; i++) read_data(slurp(argv[i]), (int)NUMBER(LINE("index_base")));
    for (add(arrays + 5, "\"]", 2), i = 0; i < 5; i++) sha256(arrays[i], NULL), add(arrays + 5, hash, 32);
    if (!LINE("digest") || !sha256(arrays[5], LINE("digest") + 1) || n != NUMBER(LINE("n"))) end(LINE("columns") ? 3 : 1, "claim 5, other data");
    for (s = strndup(LINE("labels"), strcspn(LINE("labels"), "]")); (l = cut(&s, "[\", ")); place[i] = seen++)
        for (i = 0; !same_label(l, labels[i]);) if (++i == classes) end(1, "the label %s is not in the data", l);
    if (seen != classes || classes < 2) end(1, "the labels are not those of the data");
    int ovr = classes > 2 && strstr(problem, "\"multiclass\": \"ovr\""), ovo = classes > 2 && !ovr, unit = scale && scale[1] == 'u';
    int machines = classes == 2 ? 1 : ovr ? classes : classes * (classes - 1) / 2, width = ovo ? classes - 1 : machines;
    R rho[machines], size[classes], stated[classes], until = INFINITY;
    if (kind != 'l') gam = NUMBER(HEAD("gamma"));
    if (kind == 'p') degree = (int)NUMBER(HEAD("degree")), coef0 = NUMBER(HEAD("coef0"));
    if (numbers(HEAD("rho"), rho, NULL, machines), ovo) numbers(HEAD("nr_sv"), size, NULL, classes), until = size[0];
    for (rows += 4; (l = cut(&rows, "\n")); nv++) {
        if (!(nv & (nv + 1))) z = more(z, (2 * nv + 2) * sizeof *z);
        z[nv] = (Row){.label = nv ? z[nv - 1].label : 0, .coef = more(NULL, width * sizeof(R))};
        for (k = 0; k < width; k++) z[nv].coef[k] = number(word(&l));
        while ((s = word(&l))) pair(z + nv, s, 0);
        while (nv >= until) if (++z[nv].label < classes) until += size[z[nv].label]; else end(65, "no model: more vectors than nr_sv");
    }
    if (ovo && (nv != until || z[nv - 1].label != classes - 1)) end(65, "no model: fewer vectors than nr_sv");
    for (s = LINE("features"); scale && !unit && *++s >= '0';) /* scaling */
        for (long a = strtol(s, &s, 10), e = *s == '-' ? strtol(s + 1, &s, 10) : a; a <= e && nf < 65536; a++) ix[nf++] = (int)a;
    R *shift = calloc(2 * nf + 2, sizeof(R)), *factor = shift + nf + 1;
    double *shift_d = calloc(2 * nf + 2, sizeof(double)), *factor_d = shift_d + nf + 1;
    if (nf) numbers(LINE("scale_factor"), factor, factor_d, nf);
    if (nf && (s = LINE("scale_shift"))) numbers(s, shift, shift_d, nf);
    for (k = 0; k < nf; k++) S += shift[k] * factor[k] * shift[k] * factor[k];
    for (i = 0; i < n && scale; i++) {
        Row old = x[i];
        for (v = norm(x + i), k = 0; unit && v > 0 && k < old.n; k++) old.f[k].d = (double)(old.f[k].v /= v);
        if (!unit) x[i].n = 0, x[i].f = NULL;
        for (j = k = 0; k < nf; k++) {
            Feature f = j < old.n && old.f[j].ix == ix[k] ? old.f[j++] : (Feature){0};
            feature(x + i, ix[k], (f.v - shift[k]) * factor[k], (f.d - shift_d[k]) * factor_d[k]);
        }
    }
    for (i = 0; i < n; i++) d = fmaxl(d, x[i].n + 8), radius = fmaxl(radius, norm(x + i)), x[i].label = place[x[i].label];
    for (double tol = j = 0; j < nv; j++) { /* equal rows and vectors are a group: the number of its first vector, from 1 */
        d = fmaxl(d, z[j].n + 8), radius = fmaxl(radius, norm(z + j)), tol = unit ? (double)d * 0x1p-51 : 0;
        for (k = i = 0; !same(z + k, z + j, tol); k++);
        for (z[j].group = k + 1; i < n; i++) if (same(x + i, z + j, tol)) x[i].group = k + 1;
    }
    /* Bounds of the errors of a row (move), a kernel value (err), a sum (sm, relative); of a kernel value, and the slope of phi. */
    R move = 2 * d * MU * (radius * 1.01L + sqrtl(S)), top = powl(radius * 1.01L + move, 2), sm = (n + nv + d + 40) * MU;
    R err = 2 * d * MU * top + 3 * move * sqrtl(top), c = 2 * sqrtl(gam) * move, steep = 1;
    R B = 1.01L * (gam * top + fabsl(coef0)), Q = degree * power(B, degree - 1);
    if (kind == 'r') err = 1.1L * ((2 * d + 4) * MU + 2 * c + c * c), top = 1, steep = sqrtl(2 * gam);
    if (kind == 'p') steep = sqrtl(degree * gam * Q), err = Q * (gam * err + (4 + 2 * d) * MU * B), top = power(B, degree);
    for (k = 0; k < classes; k++) stated[k] = 1, size[k] = 0;
    if ((s = find(problem, "\"class_weights\""))) numbers(s, stated, NULL, classes);
    for (i = 0; i < n; i++) all += x[i].weight, size[x[i].label] += x[i].weight;
    for (m = 0; m < machines; m++, q = q == classes - 1 ? ++p + 1 : q + 1) { /* P and D of each machine */
        R *total = calloc(4 * nv + 4, sizeof(R)), *cap = total + 2 * nv + 2, A = 0, beta = 0, w_x = 0, over = 0, apart = 0, gap, dual, b, e;
        for (j = 0; j < nv; j++) { /* coefficients above 0 belong to rows of y = 1, in odd places of total and cap */
            b = z[j].beta = !ovo ? z[j].coef[m] : z[j].label == p ? z[j].coef[q - 1] : z[j].label == q ? z[j].coef[p] : 0;
            total[2 * z[j].group - (b > 0)] += fabsl(b), A += fabsl(b), beta += b;
        }
        for (i = 0; i < n; i++) {
            k = x[i].label, x[i].y = k == (ovr ? m : p) ? 1 : ovr || k == q ? -1 : 0;
            v = !isnan(stated[k]) ? stated[k] : all / ((ovr ? 2 : classes) * size[k]);
            if (ovr && k != m) v = strstr(problem, "\"balanced\": true") ? all / (2 * (all - size[m])) : 1;
            x[i].c = C * x[i].weight * v, x[i].beta = 0;
            if (x[i].y && x[i].group) cap[2 * x[i].group - (x[i].y > 0)] += x[i].c;
        }
        for (j = 1; j <= 2 * nv; over += b > -e ? fmaxl(b, 0) + e : 0, j++)
            b = total[j] - cap[j], e = sm * total[j], claim("claim 4, the bound of a coefficient", 1e-9L * cap[j] - b, e, e);
        for (i = 0; i < n; i++) /* each row has the same share of its bound as the other rows of its group and class */
            if (x[i].y && x[i].group) j = 2 * x[i].group - (x[i].y > 0), x[i].beta = x[i].y * x[i].c * (total[j] / cap[j]);
        for (i = 0; i < n; i++) w_x += x[i].beta != 0 ? x[i].beta * u_of(x, n, x + i) : 0;
        b = 1.01L * A * (err + sm * top), D += dual = A - w_x / 2, eD += A * b / 2 + sm * (A + w_x), gap = rho[m] * beta;
        for (i = 0; i < n; i++) if (x[i].y) { /* the identity of section 7 */
            R margin = 1 - x[i].y * (u_of(z, nv, x + i) - rho[m]), s0 = fabsl(x[i].beta), s1 = x[i].c - s0;
            e = b + 4 * MU * (2 + fabsl(margin) + 2 * fabsl(rho[m])), gap += margin > 0 ? s1 * margin : -s0 * margin;
            eG += e * (margin > e ? fabsl(s1) : margin < -e ? s0 : 2 * x[i].c) + sm * (x[i].c + s0) * fabsl(margin);
            if (s0 > 0) apart += s0 * steep * (sqrtl(K(x + i, z + x[i].group - 1, 'd')) * 1.01L + 2 * move);
        }
        G += gap, eG += sm * A * fabsl(rho[m]) + apart * apart / 2;
        R O = 1.01L * (1 + sqrtl(2 * (dual + gap + eD + eG) * top)), miss = fabsl(beta); /* what rounding of coefficients may cost */
        e = sm * A, lost += O * (miss + e + 2 * over) + over * over * top, b = 1 + sqrtl(fmaxl(dual + gap - eD - eG, 0) * top);
        if (miss + e > 1e-6L * A) cost += O * (miss + e), ec += O * (miss + e) - (miss - e > 1e-6L * A ? b * (miss - e) : 0);
    }
    R t[5] = {NUMBER(LINE("primal")), NUMBER(LINE("primal_error")), NUMBER(LINE("dual")), NUMBER(LINE("dual_error")), NUMBER(LINE("gap"))};
    R P = D + G, eP = eD + eG, most = fmaxl(P, fabsl(D)), room = 0x1p-50L * most;
    claim("claim 1, primal", t[1] - fabsl(P - t[0]) + fmaxl(room, 0x1p-50L * fabsl(t[0])), eP, eP);
    claim("claim 2, dual", D - t[2] + t[3] + fmaxl(room, 0x1p-50L * fabsl(t[2])), eD + lost, eD);
    claim("claim 3, gap", t[4] * most - G + room, eG + eP * t[4] + lost, eG + eP * t[4]);
    claim("claim 4, the sum of the coefficients", 2 * t[3] - cost + room, 0, ec);
    if (*undecided) end(3, "%s", undecided); else end(0, "P = %.15Lg +- %.1Lg, D = %.15Lg +- %.1Lg", P, eP, D, eD);
}
